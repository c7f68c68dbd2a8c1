# SPDX-License-Identifier: Apache-2.0
"""rpm's database of a layer does not depend on when and where it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Packages
from imagebuilder.families.rpm.header import RpmTag
from imagebuilder.families.rpm.times import settle_times
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.verified import Pool
from imagebuilder.process import run
from imagebuilder.workspace import Workspace
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import (
    Values,
    ask_rpm,
    make_rpms,
    render_blob,
    write_database,
)

EPOCH, BEFORE = 1_600_000_000, 1_500_000_000
BELOW, ADDED = Rpm("below", files={"/a": ""}), Rpm("added", files={"/usr/share/b": "b"})
DATABASE = "var/lib/rpm/rpmdb.sqlite"
SHOWN = "%{NAME} %{INSTALLTIME} %{INSTALLTID}\\n"


def packages_of(*rpms: Rpm) -> Packages:
    """What a step has installed, as far as times need it."""
    locked = (
        LockedPackage(each.name, "1.0-1.el9", each.architecture, "0" * 64, 1, "x", "rocky:9")
        for each in rpms
    )
    return Packages("9", "amd64", tuple(locked), (), EPOCH)


def workspace_of(work: Path) -> Workspace:
    return Workspace(work, (), "upper", EPOCH, work / "log", Pool(work, work))


def install_at(seconds: int, database: Path, path: Path) -> None:
    """Let rpm record a package at that time, in a database without a log that it may have."""
    options = ("--install", "--justdb", "--nodeps", "--noscripts", "--noplugins", "--nosignature")
    env = {"RPM_FORCE_DEBIAN": "1", "SOURCE_DATE_EPOCH": str(seconds)}
    run(["rpm", "--dbpath", database.parent, *options, path], env=env)


def make_layer(work: Path, rpms: list[Path], seconds: int) -> Path:
    """A layer whose database has one package from below and one of that time."""
    database = work / "upper" / DATABASE
    database.parent.mkdir(parents=True)
    install_at(BEFORE, database, rpms[0])
    install_at(seconds, database, rpms[1])
    return database


def test_times_of_added_packages_are_those_of_the_layer(tmp_path: Path) -> None:
    rpms = make_rpms(tmp_path, BELOW, ADDED)
    found = []
    for seconds in (1_700_000_000, 1_800_000_777):
        work = tmp_path / str(seconds)
        database = make_layer(work, rpms, seconds)
        before = database.read_bytes()
        settle_times(packages_of(ADDED), workspace_of(work))
        found.append((before, database.read_bytes()))
        shown = ask_rpm("--dbpath", database.parent, "-qa", "--queryformat", SHOWN)
        assert sorted(shown.splitlines()) == [
            f"added {EPOCH} {EPOCH}", f"below {BEFORE} {BEFORE}",
        ]  # fmt: skip
        assert sorted(path.name for path in work.iterdir()) == ["upper"]
        run(["rpmdb", "--dbpath", database.parent, "--verifydb"])
        # rpm goes on with it, and finds packages by the time of their installation.
        asked = ("-q", "--tid", str(EPOCH), "--queryformat", "%{NAME}")
        assert ask_rpm("--dbpath", database.parent, *asked) == "added"
    (one, same), (other, as_well) = found
    assert one != other
    assert same == as_well


def test_a_layer_without_a_database_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    settle_times(packages_of(ADDED), workspace_of(tmp_path))
    assert [path.name for path in tmp_path.rglob("*")] == ["upper"]


def test_files_beside_the_database_are_not_written_to(tmp_path: Path) -> None:
    """sqlite would follow a link that a script of a package left there."""
    rpms = make_rpms(tmp_path, BELOW, ADDED)
    database = make_layer(tmp_path / "work", rpms, 1_700_000_000)
    victim = tmp_path / "victim"
    victim.write_text("")
    for name in ("-wal", "-shm", "-journal"):
        link = database.with_name(database.name + name)
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
    settle_times(packages_of(ADDED), workspace_of(tmp_path / "work"))
    assert victim.read_text() == ""
    assert victim.stat().st_mtime_ns == victim.stat().st_ctime_ns


@pytest.mark.parametrize(
    "values",
    [
        {RpmTag.NAME: "added", RpmTag.ARCH: "noarch"},
        {RpmTag.NAME: "added", RpmTag.ARCH: "noarch", RpmTag.INSTALLTIME: [1, 2]},
        {RpmTag.NAME: "added", RpmTag.ARCH: "noarch", RpmTag.INSTALLTIME: "now"},
    ],
)
def test_a_header_without_a_time_is_refused(tmp_path: Path, values: Values) -> None:
    write_database(tmp_path / "upper" / DATABASE, [render_blob(values)])
    with pytest.raises(WorkError, match="added has no time of its installation"):
        settle_times(packages_of(ADDED), workspace_of(tmp_path))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + bytes(4096), b"text" * 2000])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    database = tmp_path / "upper" / DATABASE
    database.parent.mkdir(parents=True)
    database.write_bytes(content)
    with pytest.raises(WorkError, match="not a readable database of rpm"):
        settle_times(packages_of(ADDED), workspace_of(tmp_path))
    assert database.read_bytes() == content
