# SPDX-License-Identifier: Apache-2.0
"""Boot tests that come with a release: which are kept, and which never are."""

from __future__ import annotations

import copy
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.transport import reports
from imagebuilder.publish.transport.reports import (
    KeptReports,
    find_carried,
    list_ids,
    pack_reports,
    take_reports,
)
from imagebuilder.report.save import find_reports
from imagebuilder.report.terminal import render_report, report_row
from imagebuilder.report.types import REPORT, Report
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.ui import Ui
from tests.unit.planted_reports import NO_ROOT, make_report, plant
from tests.unit.test_publish_gate import NEW, OLD, make_release

QUIET = Ui(io.StringIO())


@pytest.fixture
def builder(tmp_path: Path) -> Tree:
    """The sender's tree: both releases, the new one booted."""
    tree = make_tree(tmp_path / "builder")
    for name in (OLD, NEW):
        make_release(tree, name)
    plant(tree, replace(make_report(tree, NEW, 1), machine="big\x1b[2Jbox"))
    return tree


@pytest.fixture
def node(tmp_path: Path) -> Tree:
    """A control node with the same two releases, and no test of its own."""
    tree = make_tree(tmp_path / "control")
    for name in (OLD, NEW):
        make_release(tree, name)
    return tree


def take(tree: Tree, name: str, content: bytes) -> KeptReports:
    """What the far end does with what came."""
    return take_reports(tree, name, io.BytesIO(content), QUIET)


def line(report: Report, **logs: str) -> bytes:
    """A report on its way, written by whoever likes."""
    named = {name.replace("_", "/"): text for name, text in logs.items()}
    return json.dumps({"report": REPORT.encode(report), "logs": named}).encode() + b"\n"


def test_a_report_that_arrives_later_is_not_newer_for_that(builder: Tree, node: Tree) -> None:
    plant(builder, make_report(builder, NEW, 0))  # the clock was set back
    plant(node, make_report(node, NEW, 5, verdict=NO_ROOT))
    sent = find_carried(builder, ReleaseName(*NEW.split("@")), ())
    assert len(take(node, NEW, pack_reports(builder, sent)).kept) == 2
    there = find_reports(node, ReleaseName(*NEW.split("@")))
    assert [report.id[-3:] for report in there] == ["01Z", "00Z", "05Z"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "zzz"}, "gives neither reports nor logs such a name"),
        ({"id": "29991231T000000Z-1"}, "gives neither reports nor logs such a name"),
        ({"id": "20261399T000000Z-1"}, "gives neither reports nor logs such a name"),
        ({"digests": {}, "root": "floppy"}, "there is no root of the kind 'floppy'"),
    ],
)
def test_a_report_that_only_seems_to_be_one_is_never_kept(
    builder: Tree, node: Tree, change: dict[str, Any], why: str
) -> None:
    (report,) = find_carried(builder, ReleaseName(*NEW.split("@")), ())
    trials = tuple(replace(each, root=change.pop("root", each.root)) for each in report.trials)
    told = take(node, NEW, line(replace(report, trials=trials, **change)))
    assert (told.kept, [why in each for each in told.refused]) == ((), [True])


def test_reports_fill_no_disk(builder: Tree, node: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = find_carried(builder, ReleaseName(*NEW.split("@")), ())
    monkeypatch.setattr(reports, "MOST_LOGS", 9)
    (why,) = take(node, NEW, line(report, **{"dnsmasq.log": "x" * 10})).refused
    assert "its logs are longer" in why
    monkeypatch.setattr(reports, "MOST_REPORTS", 1)
    one, two = (line(replace(report, id=f"20261121T10000{n}Z")) for n in (1, 2))
    told = take(node, NEW, one + two)
    assert told.kept == ("20261121T100001Z",)
    assert "this tree has 1 reports of the release" in told.refused[0]
    monkeypatch.setattr(reports, "MOST_SENT", len(one) + 1)
    with pytest.raises(InputError, match="are longer than"):
        take(node, NEW, one + two)


def test_a_report_of_the_same_bytes_opens_the_gate_and_keeps_its_logs(
    builder: Tree, node: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # a control node has no QEMU
    monkeypatch.setattr("imagebuilder.environment.SBIN", "/nowhere")
    with pytest.raises(WorkError) as caught:
        promote(node, NEW, QUIET)
    assert caught.value.faults[0].hint.startswith(
        f"run imagebuilder test {NEW} on the builder, then publish it again from there"
    )
    assert list_ids(node, ReleaseName(*NEW.split("@"))) == ()
    (report,) = find_carried(builder, ReleaseName("rx", "20260102-bb"), ())
    packed = pack_reports(builder, [report])
    assert take(node, NEW, packed) == KeptReports((report.id,), ())
    assert take(node, NEW, packed) == KeptReports((), ()), "the same report once more"
    assert find_reports(node, ReleaseName(*NEW.split("@"))) == (report,)
    log = node.reports(ReleaseName(*NEW.split("@"))) / report.id / NO_ROOT.log
    assert "Linux version 7.0" in log.read_text()
    assert "boot test 20261121T100001Z has passed on bigbox" in promote(node, NEW, QUIET).render()
    assert list_ids(node, ReleaseName(*NEW.split("@"))) == (report.id,)
    assert find_carried(builder, ReleaseName("rx", "20260102-bb"), [report.id]) == []


def test_a_report_of_other_bytes_is_never_kept(builder: Tree, node: Tree) -> None:
    (booted,) = find_reports(builder, ReleaseName(*NEW.split("@")))
    profile, _, version = OLD.partition("@")
    for planted, why in (
        (booted, "it is about 'rx@20260102-bb'"),  # of another release
        (replace(booted, version=version), "vmlinuz differs"),  # the same, renamed
        (replace(make_report(node, OLD, 2), digests={}), "root differs"),
        (make_report(node, OLD, 3, selection="ssh"), "ran only checks that match -k 'ssh'"),
        (
            replace(make_report(node, OLD, 4), id="../../../etc"),
            "neither reports nor logs such a name",
        ),
        (replace(make_report(node, OLD, 5), id=""), "neither reports nor logs such a name"),
    ):
        kept = take(node, OLD, line(planted))
        assert kept.kept == ()
        assert why in kept.refused[0]
    kept = take(node, OLD, line(make_report(node, OLD, 6), **{"_x.log": ""}))
    assert "neither reports nor logs such a name" in kept.refused[0]
    assert find_reports(node, ReleaseName(profile, version)) == ()
    with pytest.raises(WorkError, match="cannot become stable: it has no boot test report"):
        promote(node, OLD, QUIET)


def test_a_report_that_contradicts_itself_is_an_error(node: Tree) -> None:
    lied = REPORT.encode(make_report(node, NEW, 1)) | {"passed": False}
    with pytest.raises(InputError, match="passed: does not follow from the rest"):
        take(node, NEW, json.dumps({"report": lied, "logs": {}}).encode())


@pytest.mark.parametrize("content", [b"nonsense\n", b"{}\n", b'{"report": {}, "logs": {}}\n'])
def test_what_is_no_report_is_an_error(node: Tree, content: bytes) -> None:
    with pytest.raises(InputError, match="damaged"):
        take(node, NEW, content)


def test_without_the_release_nothing_is_kept(node: Tree) -> None:
    assert list_ids(node, ReleaseName("rx", "gone")) is None
    with pytest.raises(InputError, match="no release of rx matches 'gone'"):
        take(node, "rx@gone", b"")


def test_no_text_of_a_report_begins_a_line_of_its_own(builder: Tree, node: Tree) -> None:
    """Whoever sends a report could say in it that something else passed."""
    plant(builder, make_report(builder, NEW, 2, verdict=NO_ROOT))
    sent = [REPORT.encode(replace(each, sizes={"root": 1})) for each in find_reports(builder, NAME)]
    changed = [put(each, path, HOSTILE) for each in sent for path in paths_of(each)]
    assert len(changed) > 80
    shown = 0
    for number, each in enumerate(changed):
        each["id"] = f"20260102T000000Z-{number}"
        try:
            kept = take(node, str(NAME), json.dumps({"report": each, "logs": {}}).encode()).kept
        except InputError:  # of a key that is a name or one of few words
            continue
        for one in (one for one in find_reports(node, NAME) if one.id in kept):
            assert not [line for line in seen_of(one) if line.startswith("forged")], each
            shutil.rmtree(node.reports(NAME) / one.id)
            shown += 1
    assert shown > 40


HOSTILE = "x\nforged line\u2028forged line"
NAME = ReleaseName(*NEW.split("@"))


def seen_of(report: Report) -> list[str]:
    """The lines that a person sees of a report."""
    row = "\n".join(report_row(report))
    return f"{render_report(report, colour=False)}\n{row}".splitlines()


def paths_of(value: object, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts are in a JSON value; a key that is one ends with None."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from paths_of(each, (*above, key))
            if above == ("sizes",):
                yield (*above, key, None)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from paths_of(each, (*above, index))
    elif isinstance(value, str):
        yield above


def put(value: dict[str, Any], path: tuple[Any, ...], text: str) -> dict[str, Any]:
    """A copy of a JSON value with a text in place of another."""
    copied = copy.deepcopy(value)
    *above, last = path if path[-1] is not None else path[:-1]
    place: Any = copied
    for key in above:
        place = place[key]
    if path[-1] is None:
        place[text] = place.pop(last)
    else:
        place[last] = text
    return copied
