# SPDX-License-Identifier: Apache-2.0
"""Reports are read as they were written, kept as long as they count, and shown to anybody."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from imagebuilder.cli.report import write_whole
from imagebuilder.errors import InputError, WorkError
from imagebuilder.report.junit import render_junit
from imagebuilder.report.page import render_page
from imagebuilder.report.save import (
    begin_report,
    find_report,
    find_reports,
    in_order,
    list_reports,
    load_report,
    read_logs,
    save_report,
)
from imagebuilder.report.standing import State, find_standing
from imagebuilder.report.terminal import render_report
from imagebuilder.report.types import REPORT, Report
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.unit.report.samples import (
    DIGESTS,
    NO_EXPORT,
    broken_checks,
    degraded,
    failed,
    hostile,
    inference,
    passed,
    report,
    trial,
)

SAMPLES: tuple[Callable[[], Report], ...] = (passed, failed, degraded, broken_checks, hostile)
OTHER = DIGESTS | {"initrd.img": "99" * 32}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree without a report."""
    return make_tree(tmp_path / "tree")


def keep(tree: Tree, made: Report) -> Path:
    """Save a report; its folder."""
    with begin_report(tree, made.release, made.id) as staged:
        (staged / "console-gate-1.log").write_text("1.0 one\n2.0 two\n")
        return save_report(tree, made, staged)


# --- as JSON


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_a_report_is_read_as_it_was_written(sample: Callable[[], Report]) -> None:
    made = sample()
    text = json.dumps(REPORT.encode(made))
    assert REPORT.encode(REPORT.decode(json.loads(text), "report.json")) == json.loads(text)
    assert REPORT.decode(json.loads(text), "report.json").failure == made.failure


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v.pop("digests"), "digests: is missing"),
        (lambda v: v.pop("schema"), "schema: is missing"),
        (lambda v: v.update(schema=2), "schema 2"),
        (lambda v: v.update(seconds="fast"), "seconds"),
        (lambda v: v.update(passed=False), "passed: does not follow from the rest"),
        (lambda v: v.update(surprise=1), "surprise"),
        (lambda v: v["trials"][0]["machines"][0]["stages"][2].update(stage="nap"), r"stages\[2\]"),
        (lambda v: v["static"][0].update(outcome="perhaps"), r"static\[0\]\.outcome"),
        (lambda v: v.update(started="yesterday"), "started"),
    ],
    ids=range(9),
)
def test_a_damaged_report_is_refused_by_file_and_key(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    value: dict[str, Any] = json.loads(json.dumps(REPORT.encode(passed())))
    change(value)
    with pytest.raises(InputError, match=said) as caught:
        REPORT.decode(value, "there/report.json")
    assert caught.value.faults[0].where == "there/report.json"
    assert caught.value.faults[0].hint


def test_a_report_from_before_it_was_told_where_layers_are_is_read() -> None:
    value: dict[str, Any] = json.loads(json.dumps(REPORT.encode(passed())))
    for made in value["trials"]:
        made["inference"].pop("placed")
    assert REPORT.decode(value, "report.json").passed


# --- in the tree


def test_a_report_is_there_when_all_of_it_is(tree: Tree) -> None:
    made = passed()
    top = tree.reports(made.release)
    with begin_report(tree, made.release, made.id) as staged:
        (staged / "console.log").write_text("line\n")
        assert find_reports(tree, made.release) == ()
        folder = save_report(tree, made, staged)
    assert find_reports(tree, made.release) == (load_report(folder),)
    assert read_logs(folder) == {"console.log": "line\n"}
    assert [path.name for path in top.iterdir() if path.name.startswith(".new")] == []


def test_a_report_that_was_not_saved_leaves_nothing(tree: Tree) -> None:
    with begin_report(tree, ReleaseName("generic", "1"), "a") as staged:
        assert staged.is_dir()
    assert not staged.exists()
    assert find_reports(tree, ReleaseName("generic", "1")) == ()


def test_what_the_dead_left_goes_and_what_the_living_make_stays(tree: Tree) -> None:
    top = tree.reports(ReleaseName("generic", "1"))
    for name in (".new-dead", ".old-dead"):
        (top / name).mkdir(parents=True)
    with begin_report(tree, ReleaseName("generic", "1"), "a") as first:
        with begin_report(tree, ReleaseName("generic", "1"), "b"):
            assert first.is_dir()
        assert not (top / ".new-dead").exists()
        assert not (top / ".old-dead").exists()
    with pytest.raises(InputError, match="is not a valid id"):
        begin_report(tree, ReleaseName("generic", "1"), "../escape").__enter__()


def test_an_id_is_given_once(tree: Tree) -> None:
    made = passed()
    keep(tree, made)
    with pytest.raises(WorkError, match="a report with this id exists"):
        keep(tree, made)


def test_old_reports_go_but_not_what_the_gate_goes_by(tree: Tree) -> None:
    first = keep(tree, passed("20260101T000000Z-1"))
    for number in range(12):
        keep(tree, replace(failed(f"20260102T0000{number:02}Z-1"), digests=OTHER))
    ids = [made.id for made in find_reports(tree, ReleaseName(first.parts[-3], first.parts[-2]))]
    assert first.name in ids, "the newest that passed, and the only one of its bytes"
    assert len(ids) == 11
    assert "20260102T000000Z-1" not in ids


def standing_of(tree: Tree) -> State:
    """What the saved reports say about the release of the samples."""
    return find_standing(find_reports(tree, passed().release), DIGESTS, "nfs").state


def test_a_report_dated_in_the_future_counts_only_until_the_next_one(tree: Tree) -> None:
    # As version 0 wrote them: nothing says what was there before.
    old = keep(tree, passed("20261001T000000Z-1")) / "report.json"
    ahead = keep(tree, failed("20300101T000000Z-1")) / "report.json"
    for path in (old, ahead):
        value = json.loads(path.read_text())
        path.write_text(json.dumps({key: value[key] for key in value if key != "after"}))
    assert standing_of(tree) is State.FAILED
    keep(tree, passed("20261102T000000Z-1"))
    assert standing_of(tree) is State.PASSED
    assert find_report(tree, passed().profile).id == "20261102T000000Z-1"
    keep(tree, failed("20261103T000000Z-1"))
    assert standing_of(tree) is State.FAILED
    for number in range(12):
        keep(tree, passed(f"20261104T0000{number:02}Z-1"))
    assert standing_of(tree) is State.PASSED
    ids = [made.id for made in find_reports(tree, passed().release)]
    assert ahead.parent.name not in ids
    assert ids == sorted(ids)


def test_a_report_of_a_clock_that_was_set_back_is_newer(tree: Tree) -> None:
    keep(tree, passed("20261101T000000Z-1"))
    keep(tree, failed("20200101T000000Z-1"))
    assert standing_of(tree) is State.FAILED
    keep(tree, passed("20200102T000000Z-1"))
    keep(tree, report("20190101T000000Z-1", [trial("bios")]))  # another way
    standing = find_standing(find_reports(tree, passed().release), DIGESTS, "nfs")
    assert (standing.state, standing.report) == (State.PASSED, "20190101T000000Z-1")


def test_reports_of_two_machines_are_in_the_order_of_their_times() -> None:
    def made(id: str, *after: str) -> Report:  # noqa: A002
        return replace(passed(id), after=after)

    def ids(*reports: Report) -> str:
        return "".join(each.id for each in in_order(reports))

    assert ids(made("d"), made("a"), made("c"), made("b")) == "abcd"
    assert ids(made("b", "z"), made("c"), made("a"), made("z", "a")) == "azbc"
    assert ids(made("a", "b"), made("b", "a")) in ("ab", "ba"), "what is damaged ends too"
    assert ids(made("a", "a"), made("b")) == "ab"


@pytest.mark.parametrize("seed", range(30))
def test_the_order_is_that_of_the_rule(seed: int) -> None:
    dice = random.Random(seed)
    ids = [f"{n:02}" for n in range(30)]
    made = [replace(passed(name), after=tuple(dice.sample(ids, dice.choice((0, 0, 1, 3)))))
            for name in ids]  # fmt: skip
    left, newest_first = {each.id: each for each in made}, list[str]()
    while left:
        older = {name for each in left.values() for name in each.after}
        newest_first.append(max(left.keys() - older or left))
        del left[newest_first[-1]]
    dice.shuffle(made)
    assert [each.id for each in in_order(made)] == newest_first[::-1]


def test_a_damaged_file_hides_no_other_report(tree: Tree) -> None:
    good, bad = keep(tree, passed("a")), keep(tree, passed("b"))
    (bad / "report.json").write_text((bad / "report.json").read_text()[:500])
    found = list_reports(tree, passed().profile)
    assert [made.id for made in found.reports] == [good.name]
    assert [fault.where for fault in found.faults] == [f"{bad / 'report.json'}:13:20"]
    assert find_report(tree, passed().name).id == "a"
    with pytest.raises(InputError, match="no report has the id"):
        find_report(tree, passed().name, "zzz")
    with pytest.raises(InputError, match="nothing: has no boot test report"):
        find_report(tree, "nothing")


# --- the gate's question


@pytest.mark.parametrize(
    ("reports", "digests", "root", "state"),
    [
        ([], DIGESTS, "nfs", State.UNTESTED),
        ([passed("a")], DIGESTS, "nfs", State.PASSED),
        ([passed("a")], DIGESTS, "http", State.PASSED),
        ([passed("a"), failed("b")], DIGESTS, "nfs", State.FAILED),
        ([failed("a"), passed("b")], DIGESTS, "nfs", State.PASSED),
        ([passed("a")], OTHER, "nfs", State.OTHER_BYTES),
        ([passed("a")], DIGESTS | {"root.squashfs": "00" * 32}, "nfs", State.PASSED),
        ([passed("a")], DIGESTS | {"root.squashfs": "00" * 32}, "http", State.OTHER_ROOT),
        ([replace(passed("a"), selection="ssh")], DIGESTS, "nfs", State.UNTESTED),
        ([passed("a"), replace(failed("b"), selection="ssh")], DIGESTS, "nfs", State.PASSED),
        ([report("a", [trial("bios", "http")])], DIGESTS, "nfs", State.OTHER_ROOT),
        (
            [report("a", [trial("bios", "nfs", verdict=NO_EXPORT)]), report("b", [trial()])],
            DIGESTS, "nfs", State.FAILED,
        ),
        ([broken_checks()], DIGESTS, "nfs", State.FAILED),
    ],
    ids=[
        "never", "passed", "passed-over-http", "newer-failure", "mended", "other-initrd",
        "squashfs-is-not-asked", "other-squashfs", "partial", "partial-failure", "other-root",
        "another-way-failed", "checks",
    ],
)  # fmt: skip
def test_what_opens_the_gate(
    reports: list[Report], digests: dict[str, str], root: str, state: State
) -> None:
    standing = find_standing(reports, digests, root)
    assert standing.state is state
    assert standing.why
    assert standing.tested is {State.PASSED: True, State.FAILED: False}.get(state)


# --- for people and for CI


def test_the_terminal_says_the_verdict_first() -> None:
    assert render_report(passed(), colour=False).splitlines()[0] == "PASSED"
    text = render_report(failed(), colour=False)
    assert text.splitlines()[0].startswith("FAILED in stage root")
    assert "mount.nfs4: mounting 10.77.0.1:/root/rx7600xt failed" in text
    assert "the export of this release on the server" in text
    said = render_report(degraded(), colour=False)
    assert re.match(r"PASSED, degraded.*cpu.*rocm", said)
    assert "\x1b[" not in text
    assert "\x1b[" in render_report(failed(), colour=True)


def test_a_ci_sees_the_stage_that_failed() -> None:
    assert not ET.fromstring(render_junit(passed())).findall(".//failure")
    cases = ET.fromstring(render_junit(failed())).findall(".//testcase[failure]")
    assert [case.get("name") for case in cases] == ["root"]
    broken = ET.fromstring(render_junit(broken_checks())).findall(".//testcase[failure]")
    assert len(broken) >= 2


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_the_page_needs_nothing_else_and_takes_text_as_text(sample: Callable[[], Report]) -> None:
    hostile_log = "\x1b[31mred\x1b[0m </script><img src=x onerror=alert(1)>\n" * 3000
    page = render_page(sample(), {"console-gate-1.log": hostile_log})
    assert "<img" not in page
    assert "onerror=alert(1)&gt;" in page
    assert "\x1b" not in page
    assert page.count("</script>") == page.count("<script")
    assert page.count("onerror=alert(1)&gt;") < 2100, "the end of a long log"
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "prefers-color-scheme" in page
    assert '<meta name="viewport"' in page


def test_an_answer_says_where_it_was_computed() -> None:
    made = replace(inference("rocm"), placed="2 of 3 layers offloaded (ROCm0 1.8 MiB)")
    page = render_page(report("a", [trial(answer=made)]), {})
    assert "2 of 3 layers offloaded" in page


def test_a_file_is_written_whole_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("before")
    (tmp_path / "link").symlink_to(target)
    write_whole(tmp_path / "link", "after")
    assert target.read_text() == "after"
    assert (tmp_path / "link").is_symlink()
    reading, writing = os.pipe()
    write_whole(Path(f"/dev/fd/{writing}"), "text")
    assert os.read(reading, 10) == b"text"
    for end in (reading, writing):
        os.close(end)
    with pytest.raises(InputError, match="is a folder"):
        write_whole(tmp_path, "text")
    with pytest.raises(InputError, match="does not exist"):
        write_whole(tmp_path / "absent/page.html", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "page.html"]


@pytest.mark.root
def test_a_link_of_another_user_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root writes its report into /tmp, where everybody may have put a link of that name."""
    shared, target = tmp_path / "shared", tmp_path / "passwd"
    shared.mkdir()
    shared.chmod(0o1777)
    for link, to in (("page", target), ("own", shared / "page"), ("good", tmp_path / "made")):
        (shared / link).symlink_to(to)
    os.chown(shared / "page", 4321, 4321, follow_symlinks=False)
    for name in ("page", "own"):
        target.write_text("before")
        with pytest.raises(InputError, match=r"is a link of user 4321 to .*passwd"):
            write_whole(shared / name, "after")
        assert target.read_text() == "before"
    write_whole(shared / "good", "after")
    assert (tmp_path / "made").read_text() == "after"
    monkeypatch.setenv("SUDO_UID", "4321")
    write_whole(shared / "page", "after")
    assert target.read_text() == "after"
