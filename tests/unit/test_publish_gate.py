# SPDX-License-Identifier: Apache-2.0
"""What may become stable: refusals and their words, and what the journal keeps of it."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError, WorkError
from imagebuilder.image.proof import Answer, Finding, Level, Proof, Question
from imagebuilder.image.types import ImageBoot, ImageRoot
from imagebuilder.publish.channel.gate import MACHINE, is_under_test, under_test
from imagebuilder.publish.channel.move import Moved, promote, rollback
from imagebuilder.publish.channel.standing import MEMO, release_standing
from imagebuilder.publish.journal import Event, read_tail
from imagebuilder.publish.listing import ListedRelease, list_releases, tell_forced
from imagebuilder.publish.release.content import DamagedError, release_digests, render_sums
from imagebuilder.publish.removal import Caution, collect_releases, unpublish
from imagebuilder.report.standing import State
from imagebuilder.report.types import REPORT
from imagebuilder.rootkind import RootKind
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.ui import Ui
from tests.images import IMAGE, put_manifest
from tests.planted_roots import plant_root
from tests.unit.planted_reports import NO_ROOT, make_report, plant

OLD, NEW = "rx@20260101-aa", "rx@20260102-bb"
REASON = "the wire is down, tried on node7 by hand"
BOLD = Caution(boot_minutes=0, strangers=True)


@pytest.fixture(autouse=True)
def _qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine can boot releases, whatever is installed on it."""
    program = tmp_path / "bin" / MACHINE
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two releases whose nodes have their root over NFS; the newer one is candidate."""
    tree = make_tree(tmp_path / "netboot")
    make_release(tree, OLD)
    make_release(tree, NEW)
    link = tree.channel("rx", "candidate")
    link.parent.mkdir()
    link.symlink_to(f"../../http/releases/{NEW.replace('@', '/')}")
    return tree


UNPROVED = Proof(
    "rx@1", (Answer(Question.CODE, (
        Finding(Level.FACT, "six targets", question=Question.CODE),
        Finding(Level.FAULT, "no code for gfx1151", question=Question.CODE),
    )),),
)  # fmt: skip


def make_release(tree: Tree, name: str, root: RootKind = "nfs", proof: Proof | None = None) -> None:
    """A release with the files every release has, and what names the commit of its root."""
    profile, _, version = name.partition("@")
    folder = tree.release(ReleaseName(profile, version))
    folder.mkdir(parents=True)
    for file in ("vmlinuz", "early.img", "initrd.img", "boot.ipxe", "root.squashfs"):
        (folder / file).write_text(f"{file} {version}")
    made = replace(
        IMAGE,
        profile=profile,
        version=version,
        boot=ImageBoot(root, ()),
        root=ImageRoot(plant_root(tree, profile, version), "", 0),
        proof=proof,
    )
    put_manifest(folder, made)
    sums = {path.name: digest_of_file(path) for path in folder.iterdir()}
    (folder / "SHA256SUMS").write_text(render_sums(sums))
    tree.shared_squashfs(ReleaseName(profile, version)).hardlink_to(folder / "root.squashfs")


class Person:
    """Somebody who promotes; `said` is what was told."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.stream = io.StringIO()
        self.ui = Ui(self.stream)

    @property
    def said(self) -> str:
        return self.stream.getvalue()

    def promote(self, name: str = "rx", untested: str = "") -> Moved:
        return promote(self.tree, name, self.ui, untested=untested)

    def rollback(self, to: str = "", untested: str = "") -> Moved:
        return rollback(self.tree, "rx", self.ui, to=to, untested=untested)


@pytest.fixture
def person(tree: Tree) -> Person:
    return Person(tree)


def last_event(tree: Tree) -> Event:
    return read_tail(tree.journal)[-1]


def stable(tree: Tree) -> str:
    """Where the channel points; empty for nowhere."""
    link = tree.channel("rx", "stable")
    return link.readlink().name if link.is_symlink() else ""


def damage(path: Path) -> None:
    path.write_text("{")


def failed_again(tree: Tree) -> None:
    plant(tree, make_report(tree, NEW, 1))
    plant(tree, make_report(tree, NEW, 2, verdict=NO_ROOT))


def two_ways(tree: Tree) -> None:
    plant(tree, make_report(tree, NEW, 1))
    plant(tree, make_report(tree, NEW, 2, root="http", verdict=NO_ROOT))


# What lies in the folder of reports, what is said, and what to type.
REFUSED: dict[str, tuple[Callable[[Tree], object], str, str]] = {
    "never tested": (
        lambda tree: tree,
        "it has no boot test report",
        "run imagebuilder test rx;",
    ),
    "failed": (
        lambda tree: plant(tree, make_report(tree, NEW, 1, verdict=NO_ROOT)),
        "uefi+nfs failed in stage root: mount.nfs4: access denied (report 20261121T100001Z)",
        "run imagebuilder report rx to see why; once it is fixed, run imagebuilder test rx;",
    ),
    "passed, and failed later": (
        failed_again,
        "uefi+nfs failed in stage root: mount.nfs4: access denied (report 20261121T100002Z)",
        "run imagebuilder report rx to see why;",
    ),
    "another way failed": (
        two_ways,
        "uefi+http failed in stage root",
        "run imagebuilder report rx to see why;",
    ),
    "another initrd": (
        lambda tree: plant(tree, make_report(tree, NEW, 1, other={"initrd.img": "x"})),
        "the newest report, 20261121T100001Z, is about other bytes: initrd.img differs",
        "run imagebuilder test rx;",
    ),
    "another first part of the initrd": (
        lambda tree: plant(tree, make_report(tree, NEW, 1, other={"early.img": "x"})),
        "the newest report, 20261121T100001Z, is about other bytes: early.img differs",
        "run imagebuilder test rx;",
    ),
    "another root": (
        lambda tree: plant(tree, make_report(tree, NEW, 1, other={"root": "x"})),
        "is about other bytes: root differs",
        "run imagebuilder test rx;",
    ),
    "only some checks": (
        lambda tree: plant(tree, make_report(tree, NEW, 1, selection="ssh")),
        "ran only checks that match -k 'ssh'",
        "run imagebuilder test rx;",
    ),
    "only the other kind of root": (
        lambda tree: plant(tree, make_report(tree, NEW, 1, root="http")),
        "it was tested with its root over http, but its nodes use nfs",
        "run imagebuilder test rx --root nfs;",
    ),
    "a report that is damaged": (
        lambda tree: damage(plant(tree, make_report(tree, NEW, 1)) / "report.json"),
        "it has no boot test report",
        "run imagebuilder test rx;",
    ),
    "a report of another release": (
        lambda tree: plant(tree, make_report(tree, OLD, 1)),
        "it has no boot test report",
        "run imagebuilder test rx;",
    ),
}


@pytest.mark.parametrize(("planted", "what", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_has_not_booted_is_refused_with_the_command_to_type(
    tree: Tree, person: Person, planted: Callable[[Tree], object], what: str, hint: str
) -> None:
    planted(tree)
    with pytest.raises(WorkError, match=re.escape(what)) as caught:
        person.promote()
    (fault,) = caught.value.faults
    assert fault.where == NEW
    assert fault.what.startswith("cannot become stable: ")
    assert fault.hint.startswith(hint)
    assert fault.hint.endswith("; in an emergency repeat the command with --untested REASON")
    assert caught.value.exit_code == 1
    assert stable(tree) == ""
    assert not tree.journal.exists()
    # A reason opens the gate all the same, and stays.
    moved = person.promote(untested=REASON)
    assert moved.render().endswith(f"; untested: {REASON}")
    assert moved.as_json()["untested"] == REASON
    assert (last_event(tree).reason, last_event(tree).report) == (REASON, "")
    assert what in person.said


def test_what_is_not_proved_is_refused_though_it_has_booted(tree: Tree, person: Person) -> None:
    name = "rx@20260103-cc"
    make_release(tree, name, proof=UNPROVED)
    plant(tree, make_report(tree, name, 1))
    with pytest.raises(WorkError, match="failed its proof: no code for gfx1151") as caught:
        person.promote(name)
    assert f"run imagebuilder prove {name} to see why" in caught.value.faults[0].hint
    assert stable(tree) == ""
    assert person.promote(name, untested=REASON).as_json()["untested"] == REASON
    assert "although its proof failed" in person.said


def test_a_report_that_cannot_be_read_is_named(tree: Tree, person: Person) -> None:
    path = plant(tree, make_report(tree, NEW, 1)) / "report.json"
    plant(tree, make_report(tree, NEW, 2))
    damage(path)
    assert person.promote().passage.report == "20261121T100002Z"
    assert f"warning: {path}:1:2: is damaged" in person.said


def test_what_has_booted_is_promoted_and_the_report_is_recorded(tree: Tree, person: Person) -> None:
    plant(tree, make_report(tree, NEW, 1))
    moved = person.promote()
    assert moved.render() == (
        "rx: stable is now 20260102-bb, its first release; boot test 20261121T100001Z has passed"
    )
    assert moved.as_json()["report"] == "20261121T100001Z"
    event = json.loads(tree.journal.read_text())
    assert (event["report"], event["reason"]) == ("20261121T100001Z", "")
    assert person.said == ""


def test_nodes_with_their_root_over_http_need_a_test_over_http(tree: Tree, person: Person) -> None:
    make_release(tree, "rx@20260103-cc", root="http")
    plant(tree, make_report(tree, "rx@20260103-cc", 1))
    with pytest.raises(WorkError, match="root over nfs, but its nodes use http") as caught:
        person.promote("rx@cc")
    assert caught.value.faults[0].hint.startswith(
        "run imagebuilder test rx@20260103-cc --root http;"
    ), "no candidate: by its full name"
    plant(tree, make_report(tree, "rx@20260103-cc", 2, root="http", other={"root": "x"}))
    assert person.promote("rx@cc").passage.report == "20261121T100002Z"


def test_a_reason_that_is_not_needed_is_not_recorded(tree: Tree, person: Person) -> None:
    plant(tree, make_report(tree, NEW, 1))
    assert person.promote(untested=REASON).passage.reason == ""
    assert "--untested was not needed: boot test 20261121T100001Z has passed" in person.said
    assert last_event(tree).reason == ""
    before = tree.journal.read_text()
    person.promote(untested=REASON)
    assert "--untested was not needed: the release is already stable" in person.said
    assert tree.journal.read_text() == before


NO_REASONS = ("because", " " * 20, "two\nlines of words", "a\x1b[31mred reason", "x" * 301)


@pytest.mark.parametrize("reason", NO_REASONS)
def test_a_reason_is_words_on_one_line(tree: Tree, person: Person, reason: str) -> None:
    for attempt in (person.promote, lambda untested: person.rollback("aa", untested)):
        with pytest.raises(
            InputError, match="--untested: the reason must have 10 to 300 printable characters"
        ):
            attempt(untested=reason)
    assert not tree.journal.exists()


def test_what_is_stable_already_is_not_asked(tree: Tree, person: Person) -> None:
    person.promote(untested=REASON)
    plant(tree, make_report(tree, NEW, 1, verdict=NO_ROOT))
    assert person.promote().render() == "rx: stable is already 20260102-bb"
    assert person.rollback("bb").previous == "20260102-bb"


def test_damaged_files_are_named_before_the_gate(tree: Tree, person: Person) -> None:
    (tree.release(ReleaseName("rx", "20260102-bb")) / "vmlinuz").write_text("x")
    with pytest.raises(DamagedError, match="vmlinuz: does not match"):
        person.promote(untested=REASON)


def test_a_rollback_is_no_way_round(tree: Tree, person: Person) -> None:
    with pytest.raises(WorkError, match="cannot become stable"):
        person.rollback("aa")
    assert stable(tree) == ""
    assert person.rollback("aa", REASON).passage.reason == REASON
    assert last_event(tree).event == "set"
    plant(tree, make_report(tree, NEW, 1))
    assert person.rollback("bb").passage.report == "20261121T100001Z"


def test_back_to_what_was_stable_needs_nothing(tree: Tree, person: Person) -> None:
    person.promote(OLD, REASON)
    person.promote(NEW, REASON)
    for name in (OLD, NEW):
        plant(tree, make_report(tree, name, 1, verdict=NO_ROOT))
    assert person.rollback(untested=REASON).version == "20260101-aa"
    assert "--untested was not needed: it was stable before" in person.said
    assert last_event(tree).reason == ""
    assert person.rollback("bb").version == "20260102-bb"
    with pytest.raises(WorkError, match="cannot become stable"):
        person.promote(OLD)


def test_an_attempt_that_died_before_it_happened_opens_nothing(tree: Tree, person: Person) -> None:
    """What is left of a kill between journal and link, made by a link that cannot be replaced."""
    person.promote(OLD, REASON)
    stuck = tree.channel("rx", "stable").with_name(".stable.new")
    stuck.mkdir()
    with pytest.raises(OSError, match="directory"):
        person.promote(NEW, REASON)
    assert last_event(tree).version == "20260102-bb"
    assert stable(tree) == "20260101-aa"
    stuck.rmdir()
    with pytest.raises(WorkError, match="cannot become stable"):
        person.rollback("bb")
    assert [release.forced is not None for release in list_releases(tree)] == [True, False]
    plant(tree, make_report(tree, NEW, 1))
    assert person.promote().previous == "20260101-aa"
    assert person.rollback().version == "20260101-aa"


def rows(tree: Tree) -> dict[str, ListedRelease]:
    return {listed.release.version: listed for listed in list_releases(tree)}


def test_releases_tell_what_was_tested(tree: Tree) -> None:
    assert [listed.tested for listed in rows(tree).values()] == ["-", "-"]
    plant(tree, make_report(tree, OLD, 1, verdict=NO_ROOT))
    plant(tree, make_report(tree, NEW, 1))
    for _ in range(2):  # read, then remembered
        old, new = rows(tree).values()
        assert (old.tested, new.tested) == ("failed", "yes")
        assert (old.as_json()["tested"], new.as_json()["tested"]) == (False, True)
        assert (old.as_json()["standing"], new.as_json()["report"]) == (
            "failed", "20261121T100001Z",
        )  # fmt: skip
    plant(tree, make_report(tree, NEW, 2, root="http"))
    assert rows(tree)["20260102-bb"].tested == "yes"
    make_release(tree, "rx@20260103-cc")
    plant(tree, make_report(tree, "rx@20260103-cc", 1, root="http"))
    assert rows(tree)["20260103-cc"].tested == "other root"
    assert rows(tree)["20260103-cc"].as_json()["tested"] is None


def test_releases_tell_who_did_without_a_test_until_one_passes(tree: Tree, person: Person) -> None:
    person.promote(untested=REASON)
    listed = rows(tree)["20260102-bb"]
    assert listed.row()[5] == "no, forced"
    assert (listed.as_json()["tested"], listed.as_json()["untested"]) == (None, REASON)
    tell_forced([listed], person.ui)
    event = last_event(tree)
    since = f"has been stable without a boot test since {event.time[:10]}"
    assert f"warning: {NEW} {since}: {REASON} ({event.by})" in person.said
    plant(tree, make_report(tree, NEW, 1, verdict=NO_ROOT))
    assert rows(tree)["20260102-bb"].row()[5] == "failed, forced"
    plant(tree, make_report(tree, NEW, 2))
    listed = rows(tree)["20260102-bb"]
    assert listed.row()[5] == "yes"
    before = person.said
    tell_forced([listed], person.ui)
    assert person.said == before


def test_who_was_forced_stays_so_on_every_way_back(tree: Tree, person: Person) -> None:
    person.promote(OLD, REASON)
    person.promote(NEW, REASON)
    person.rollback()
    person.rollback("bb")
    assert [event.event for event in read_tail(tree.journal)][-2:] == ["rollback", "set"]
    assert {listed.tested for listed in rows(tree).values()} == {"no, forced"}


def test_what_is_remembered_of_reports_is_never_old(tree: Tree) -> None:
    name = ReleaseName("rx", "20260102-bb")
    passed = plant(tree, make_report(tree, NEW, 1))
    assert release_standing(tree, name).state is State.PASSED
    memo = tree.reports(ReleaseName("rx", "20260102-bb")) / MEMO
    for nonsense in ("{", "[]", "{}", memo.read_text().replace("passed", "great")):
        memo.write_text(nonsense)
        assert release_standing(tree, name).state is State.PASSED
    # 1. Another report, 2. a changed one, 3. other bytes of the release.
    failed = plant(tree, make_report(tree, NEW, 2, verdict=NO_ROOT))
    assert release_standing(tree, name).state is State.FAILED
    damage(failed / "report.json")
    assert release_standing(tree, name).state is State.PASSED
    (tree.repo / "refs/heads/root/rx/20260102-bb").write_text("another")
    assert release_standing(tree, name).state is State.OTHER_BYTES
    damage(passed / "report.json")
    assert release_standing(tree, name).state is State.UNTESTED


def test_many_long_reports_do_not_slow_the_list_down(tree: Tree) -> None:
    for version in range(3, 11):
        make_release(tree, f"rx@202601{version:02}-cc")
    for listed in list_releases(tree):
        for number in range(3):
            report = make_report(tree, str(listed.release), number, checks=800)
            path = (
                tree.reports(ReleaseName("rx", listed.release.version)) / report.id / "report.json"
            )
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(REPORT.encode(report), indent=1))
    assert path.stat().st_size > 150_000
    list_releases(tree)
    start = time.process_time()  # of this process, however busy the machine is
    assert {listed.tested for listed in list_releases(tree)} == {"yes"}
    assert time.process_time() - start < 0.5, "they were read again"


def test_digests_are_those_of_what_nodes_fetch(tree: Tree) -> None:
    digests = release_digests(tree, ReleaseName("rx", "20260101-aa"))
    boot = {"vmlinuz", "early.img", "initrd.img", "boot.ipxe"}
    assert digests.keys() == {*boot, "root.squashfs", "root"}
    assert digests["root"] == (tree.repo / "refs/heads/root/rx/20260101-aa").read_text().strip()
    folder = tree.release(ReleaseName("rx", "20260101-aa"))
    assert digests["initrd.img"] == digest_of_file(folder / "initrd.img")
    assert release_digests(tree, ReleaseName("rx", "nope")) == {}


def test_reports_go_with_their_release_and_without_one(tree: Tree, person: Person) -> None:
    for name in (OLD, NEW, "rx@gone", "other@gone"):
        plant(tree, make_report(tree, name, 1))
    list_releases(tree)
    unpublish(tree, OLD, person.ui, BOLD)
    assert not tree.reports(ReleaseName("rx", "20260101-aa")).exists()
    collected = collect_releases(tree, person.ui, BOLD, keep=5, dry_run=True)
    assert list(map(str, collected.left)) == ["other@gone", "rx@gone"]
    assert "would remove the leftovers of rx@gone" in collected.render(dry_run=True)
    assert tree.reports(ReleaseName("rx", "gone")).exists()
    collect_releases(tree, person.ui, BOLD, keep=5, dry_run=False)
    left = {path.name for path in (tree.path / "reports").glob("*/*")}
    assert left == {"20260102-bb"}
    assert list((tree.path / "work").iterdir()) == []


def test_what_is_tested_stays_and_others_go(tree: Tree, person: Person) -> None:
    make_release(tree, "rx@20251231-zz")
    os.utime(tree.release(ReleaseName("rx", "20251231-zz")), (1, 1))
    old = ReleaseName("rx", "20260101-aa")
    with under_test(tree, old, person.ui), under_test(tree, old, person.ui):
        with pytest.raises(InputError, match="cannot be removed: it is being tested") as caught:
            unpublish(tree, OLD, person.ui, BOLD)
        assert caught.value.faults[0].hint == "wait until imagebuilder test has finished"
        collected = collect_releases(tree, person.ui, BOLD, keep=1, dry_run=False)
        assert list(map(str, collected.releases)) == ["rx@20251231-zz"]
        assert collected.kept == ((old, "it is being tested"),)
    assert not is_under_test(tree, old)
    unpublish(tree, OLD, person.ui, BOLD)
    with (
        pytest.raises(InputError, match="no release of rx matches"),
        under_test(tree, old, person.ui),
    ):
        raise AssertionError
    assert sorted(p.name for p in (tree.path / "locks").glob("testing-*")) == []
