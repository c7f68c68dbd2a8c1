# SPDX-License-Identifier: Apache-2.0
"""rpm's database of a layer does not depend on how it was written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.canonical import make_canonical
from imagebuilder.lock.verified import Pool
from imagebuilder.process import run
from imagebuilder.workspace import Workspace
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import ask_rpm, make_rpms

EPOCH = 1_600_000_000
ONE, OTHER = Rpm("one", files={"/a": ""}), Rpm("other", files={"/usr/share/b": "b"})
DATABASE = "var/lib/rpm/rpmdb.sqlite"


def workspace_of(work: Path) -> Workspace:
    return Workspace(work, (), "upper", EPOCH, work / "log", Pool(work, work))


def ask_database(database: Path, *words: str | Path) -> None:
    """Let rpm change a database."""
    options = ("--justdb", "--nodeps", "--noscripts", "--noplugins", "--nosignature")
    env = {"RPM_FORCE_DEBIAN": "1", "SOURCE_DATE_EPOCH": str(EPOCH)}
    run(["rpm", "--dbpath", database.parent, *options, *words], env=env)


def make_layer(work: Path, rpms: list[Path]) -> Path:
    """A layer whose database has two packages."""
    database = work / "upper" / DATABASE
    database.parent.mkdir(parents=True)
    ask_database(database, "--install", rpms[0])
    ask_database(database, "--install", rpms[1])
    return database


def leave_traces(database: Path) -> None:
    """More changes, and leftovers in pages."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("CREATE TEMPORARY TABLE kept AS SELECT hnum, blob FROM Packages")
        connection.execute("UPDATE Packages SET blob = blob || zeroblob(100000)")
        restored = "(SELECT blob FROM kept WHERE kept.hnum = Packages.hnum)"
        connection.execute(f"UPDATE Packages SET blob = {restored}")


def test_the_same_packages_are_the_same_bytes(tmp_path: Path) -> None:
    rpms = make_rpms(tmp_path, ONE, OTHER)
    found = []
    for name in ("straight", "again"):
        work = tmp_path / name
        database = make_layer(work, rpms)
        if name == "again":
            leave_traces(database)
        before = database.read_bytes()
        make_canonical(workspace_of(work))
        found.append((before, database.read_bytes()))
        shown = ask_rpm("--dbpath", database.parent, "-qa", "--queryformat", "%{NAME}\\n")
        assert sorted(shown.splitlines()) == ["one", "other"]
        assert sorted(path.name for path in work.iterdir()) == ["upper"]
        run(["rpmdb", "--dbpath", database.parent, "--verifydb"])
    (one, same), (other, as_well) = found
    assert one != other
    assert same == as_well


def test_a_layer_without_a_database_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    make_canonical(workspace_of(tmp_path))
    assert [path.name for path in tmp_path.rglob("*")] == ["upper"]


def test_files_beside_the_database_are_not_written_to(tmp_path: Path) -> None:
    """sqlite would follow a link that a script of a package left there."""
    database = make_layer(tmp_path / "work", make_rpms(tmp_path, ONE, OTHER))
    victim = tmp_path / "victim"
    victim.write_text("")
    for name in ("-wal", "-shm", "-journal"):
        link = database.with_name(database.name + name)
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
    make_canonical(workspace_of(tmp_path / "work"))
    assert victim.read_text() == ""
    assert victim.stat().st_mtime_ns == victim.stat().st_ctime_ns


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + bytes(4096), b"text" * 2000])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    database = tmp_path / "upper" / DATABASE
    database.parent.mkdir(parents=True)
    database.write_bytes(content)
    with pytest.raises(WorkError, match="not a readable database of rpm"):
        make_canonical(workspace_of(tmp_path))
    assert database.read_bytes() == content
