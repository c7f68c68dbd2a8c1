# SPDX-License-Identifier: Apache-2.0
"""The oracle of the simulated nights sees what it is there for: each fault planted, each caught."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nights import oracle
from tests.nights.driver import RESTART_S, SAID
from tests.nights.plans import BETA, KILLS, TIMES, Kind, draw_plans
from tests.workshop import CHECKOUT

OLD, NEW = "20260101000000-00000001", "20260102000000-00000002"
STATUS = "Package: tiny\nStatus: install ok installed\nVersion: 1.0\n\n"


def make_release(tree: Path, version: str, *, passed: bool | None) -> None:
    """A release of `demo` as it shall be, with a report that says `passed` unless that is None."""
    place, root = tree / "http/releases/demo" / version, tree / "roots/demo" / version
    files = {
        "vmlinuz": f"kernel {version}",
        "early.img": "microcode",
        "initrd.img": "initrd",
        "boot.ipxe": f"#!ipxe\nkernel http://x/releases/demo/{version}/vmlinuz\n",
        "manifest.json": json.dumps(
            {"profile": "demo", "version": version,
             "packages": [{"name": "tiny", "version": "1.0"}]}
        ),
    }  # fmt: skip
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(text)
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (place / "SHA256SUMS").write_text(lines)
    for path, text in (
        ("var/lib/dpkg/status", STATUS),
        ("etc/os-release", f"ID=tiny\nIMAGE_VERSION={version}\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    ref = tree / "repo/refs/heads/root/demo" / version
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text("c0ffee\n")
    if passed is not None:
        add_report(tree, version, "1", passed=passed)


def add_report(tree: Path, version: str, number: str, *, passed: bool) -> None:
    """A report of the bytes that are there."""
    place = tree / "http/releases/demo" / version
    digests = {name: oracle.sha256(place / name) for name in oracle.BOOTED} | {"root": "c0ffee"}
    report = {"id": number, "digests": digests, "trials": [{"verdict": {"passed": passed}}]}
    folder = tree / "reports/demo" / version / number
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))


def point(tree: Path, version: str, channel: str = "stable") -> None:
    """Let a channel lead to a version."""
    link = tree / "channels/demo" / channel
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"../../http/releases/demo/{version}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a release that is stable, and a newer one that never booted."""
    top = tmp_path / "tree"
    make_release(top, OLD, passed=True)
    make_release(top, NEW, passed=None)
    point(top, OLD)
    point(top, NEW, "candidate")
    move = {"event": "promote", "profile": "demo", "version": OLD, "channel": "stable"}
    (top / "journal.jsonl").write_text(json.dumps({**move, "report": "1", "reason": ""}) + "\n")
    return top


def all_of(tree: Path) -> list[str]:
    """Everything the oracle has to say of a tree."""
    found = [*oracle.examine(tree, ["demo"]), *oracle.examine_moves(tree)]
    return [*found, *oracle.examine_tidy(tree, tree / "state")]


def test_a_good_tree_is_good(tree: Path) -> None:
    assert all_of(tree) == []
    assert oracle.stable_packages(tree, "demo") == {"tiny": "1.0"}


def append(tree: Path, name: str, text: str = "x") -> None:
    """Change a file a little."""
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(text)


def remove(tree: Path, name: str) -> None:
    """Take something away."""
    path = tree / name
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def promote_untested(tree: Path) -> None:
    """What a night would do that asks nobody."""
    point(tree, NEW)


def move_without_report(tree: Path) -> None:
    """The same and back again: only the journal knows."""
    move = {"event": "promote", "profile": "demo", "version": NEW, "channel": "stable"}
    append(tree, "journal.jsonl", json.dumps({**move, "report": "", "reason": "no time"}) + "\n")


def fail_afterwards(tree: Path) -> None:
    """A newer boot test of what is stable did not pass."""
    add_report(tree, OLD, "2", passed=False)


def mix_images(tree: Path) -> None:
    """The root of one image below the name of another."""
    remove(tree, f"roots/demo/{OLD}")
    (tree / "roots/demo" / NEW).rename(tree / "roots/demo" / OLD)
    (tree / "roots/demo" / NEW).mkdir()


HTTP, ROOT = f"http/releases/demo/{OLD}", f"roots/demo/{OLD}"
FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no stable": (lambda t: remove(t, "channels/demo/stable"), "stable is no symlink"),
    "stable dangles": (lambda t: point(t, "gone"), "which does not exist"),
    "stable leads out": (lambda t: point(t, "../../../.."), "no place of its releases"),
    "promoted untested": (promote_untested, "stable without a report of its bytes"),
    "moved untested": (move_without_report, "was made stable without a boot test"),
    "failed afterwards": (fail_afterwards, "although report 2 did not pass"),
    "kernel altered": (lambda t: append(t, f"{HTTP}/vmlinuz"), "vmlinuz is not what SHA256SUMS"),
    "kernel gone": (lambda t: remove(t, f"{HTTP}/vmlinuz"), "vmlinuz is not there"),
    "a file too many": (lambda t: append(t, f"{HTTP}/core"), "core is in no SHA256SUMS"),
    "no sums": (lambda t: remove(t, f"{HTTP}/SHA256SUMS"), "SHA256SUMS cannot be read"),
    "no root": (lambda t: remove(t, ROOT), "its root is not there"),
    "another root": (mix_images, "its root is of another version"),
    "a package too many": (
        lambda t: append(t, f"{ROOT}/var/lib/dpkg/status", STATUS.replace("tiny", "more")),
        "other packages than its manifest",
    ),
    "half a release": (
        lambda t: append(t, "http/releases/demo/20260103000000-00000003/vmlinuz"),
        "half a release: it has no SHA256SUMS",
    ),
    "staging left": (lambda t: append(t, "work/publish-demo-1/x"), "publish-demo-1 was left"),
    "build left": (lambda t: append(t, "state/work/demo-1/x"), "demo-1 was left"),
    "link left": (lambda t: point(t, OLD, ".stable.new"), ".stable.new was left"),
    "root left": (lambda t: append(t, "roots/demo/20260104/x"), "20260104 has no release"),
    "candidate dangles": (lambda t: point(t, "gone", "candidate"), "candidate leads nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(tree: Path, name: str) -> None:
    plant, said = FAULTS[name]
    plant(tree)
    assert any(said in each for each in all_of(tree)), all_of(tree)


def test_releases_that_are_too_many_are_seen(tree: Path) -> None:
    make_release(tree, "20260103000000-00000003", passed=None)
    assert list(oracle.examine_retention(tree, 1)) == []
    assert list(oracle.examine_retention(tree, 0)) == ["demo has 3 releases, 0 were to be kept"]


def make_history(folder: Path, *ids: str) -> None:
    """Records of nights with their pages."""
    (folder / "nights").mkdir(parents=True)
    for each in ids:
        (folder / "nights" / f"{each}.json").write_text(json.dumps({"id": each}))
        (folder / "nights" / f"{each}.html").touch()
    (folder / "index.html").touch()


def test_history_has_a_record_of_every_night(tmp_path: Path) -> None:
    make_history(tmp_path, "a", "b", "c")
    assert list(oracle.examine_history(tmp_path, 2, 3)) == []
    assert "3 records of 4 nights" in next(oracle.examine_history(tmp_path, 4, 4))
    assert "3 records of 2 nights" in next(oracle.examine_history(tmp_path, 2, 2))
    (tmp_path / "nights/a.json").write_text('{"id": ')
    (tmp_path / "nights/b.html").unlink()
    (tmp_path / "index.html").unlink()
    said = "\n".join(oracle.examine_history(tmp_path, 3, 3))
    for what in ("a.json cannot be read", "b has no page", "the history has no page"):
        assert what in said


def test_what_nobody_is_told_of_is_seen(tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nights"
    folder.mkdir()
    after = oracle.stable_packages(tree, "demo")
    (name, *_) = after
    change = {"name": name, "old": "0", "new": after[name]}
    before = {"demo": {**after, name: "0"}}

    def wrong(ending: str, *changes: dict[str, str]) -> str:
        done = {"profile": "demo", "ending": ending, "version": "made", "changes": changes}
        (folder / "latest.json").write_text(json.dumps({"profiles": [done]}))
        return "\n".join(oracle.examine_told(folder, before, tree, ["made"]))

    assert wrong("promoted", change) == ""
    assert "told was []" in wrong("promoted")
    assert "of stable changed, but it is unchanged" in wrong("unchanged", change)
    assert "nobody is told of the release lost" in "\n".join(
        oracle.examine_told(folder, {}, tree, ["lost"])
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_has_every_fault_often_enough(seed: int) -> None:
    plans = draw_plans(seed, 30)
    assert plans == draw_plans(seed, 30)
    faults = [fault.kind for plan in plans for fault in plan.faults]
    assert {kind: faults.count(kind) for kind in Kind} == {
        **dict.fromkeys(Kind, TIMES), Kind.KILLED: len(KILLS), Kind.BROKEN: 1
    }  # fmt: skip
    quiet = [plan for plan in plans if not plan.changes]
    assert sum(not plan.faults for plan in quiet) >= 2
    assert not plans[0].faults
    broken = next(n for n, p in enumerate(plans) if Kind.BROKEN in {f.kind for f in p.faults})
    for plan in plans[broken : broken + 2]:  # what upstream broke it mends in the next night
        assert BETA in {change.package for change in plan.changes}


def test_every_fault_can_be_recognised() -> None:
    assert SAID.keys() == set(Kind) - {Kind.KILLED, Kind.CLOCK}


def test_a_killed_night_is_started_again_as_its_unit_says() -> None:
    unit = (CHECKOUT / "pxe/nightly.service.j2").read_text().splitlines()
    assert {"Restart=on-abnormal", f"RestartSec={RESTART_S}"} <= set(unit)
