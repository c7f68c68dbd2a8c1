# SPDX-License-Identifier: Apache-2.0
"""What rpm's database says that packages ship: databases that rpm made, and malicious ones."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Installed
from imagebuilder.families.rpm.database import (
    DATABASE,
    LIST_PACKAGES,
    find_installed,
    read_shipped,
    read_versions,
)
from imagebuilder.families.rpm.header import CONFIG, GHOST, RpmState, RpmTag
from imagebuilder.families.shipped import Checksum, ChecksumKind, ShippedFile
from imagebuilder.lock.verified import Pool
from imagebuilder.process import Completed, Word, run
from imagebuilder.root import Root
from imagebuilder.workspace import Workspace
from tests.fixtures.aptrepo import gpg, keyring, make_key
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import (
    DatabaseWorkspace,
    Marked,
    Values,
    add_to_database,
    ask_rpm,
    files_of,
    make_rpms,
    render_blob,
    write_database,
)

FILE, FOLDER, LINK = 0o100644, 0o040755, 0o120777
TOOL = Marked(
    "tool",
    epoch=1,
    files={
        "/etc/tool.conf": "a=1\n",
        "/lib/libtool.so.1": "library",
        "/usr/share/tool/": "",
        "/var/log/tool.log": "",
    },
    links={"/bin/tool": "true"},
    marks={"/etc/tool.conf": "%config", "/var/log/tool.log": "%ghost"},
)
OTHERS = (Rpm("data", "2", files={"/usr/share/data": "data"}), Rpm("data", "3"))


class SayingWorkspace(Workspace):
    """A workspace in which every command says the same: the name of its upper."""

    def ask(self, argv: Sequence[Word], *, check: bool = True) -> Completed:  # noqa: ARG002
        return run(["printf", "%s\\n", self.upper], check=check)


def workspace_of(root: Path) -> DatabaseWorkspace:
    return DatabaseWorkspace(root, (), "upper", 0, root / "log", Pool(root, root))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a merged /usr whose database has three packages, and a key."""
    root = tmp_path_factory.mktemp("root")
    for name in ("lib", "bin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    rpms = make_rpms(tmp_path_factory.mktemp("rpms"), TOOL, *OTHERS)
    database = add_to_database(root, *rpms)
    with keyring() as home:
        key = make_key(home, "Vendor")
        (home / "key.asc").write_text(gpg(home, "--armor", "--export", key.fingerprint))
        ask_rpm("--dbpath", database.parent, "--import", home / "key.asc")
    assert "gpg-pubkey" in ask_rpm("--dbpath", database.parent, "-qa")
    return root


def sha256(content: bytes) -> Checksum:
    return Checksum(ChecksumKind.SHA256, hashlib.sha256(content).hexdigest())


def test_files_have_their_package_and_its_checksum(root: Path) -> None:
    assert read_shipped(Root(root)) == {
        DATABASE: ShippedFile("rpm"),
        "/etc/tool.conf": ShippedFile("tool", sha256(b"a=1\n"), config=True),
        "/usr/lib/libtool.so.1": ShippedFile("tool", sha256(b"library")),
        "/usr/bin/tool": ShippedFile("tool"),
        "/usr/share/tool": ShippedFile("tool"),
        "/usr/share/data": ShippedFile("data", sha256(b"data")),
    }


def test_the_root_and_its_database_are_left_as_they_are(root: Path) -> None:
    before = {path: path.stat() for path in (root / "var/lib/rpm").iterdir()}
    (root / "var/lib/rpm/rpmdb.sqlite-shm").unlink(missing_ok=True)
    read_versions(Root(root))
    after = {path: path.stat() for path in (root / "var/lib/rpm").iterdir()}
    before.pop(root / "var/lib/rpm/rpmdb.sqlite-shm", None)
    assert after.keys() == before.keys()
    assert all(after[path].st_mtime_ns == before[path].st_mtime_ns for path in after)


def test_versions_are_those_of_rpm(root: Path) -> None:
    found = dict(read_versions(Root(root)))
    assert found.pop("data") in ("2-1.el9", "3-1.el9")
    assert found == {"tool": "1:1.0-1.el9"}


def test_a_package_in_two_versions_is_not_the_locked_one(root: Path) -> None:
    found = find_installed(workspace_of(root))
    assert found == {
        "tool.noarch": Installed("1:1.0-1.el9", 15, whole=True),
        "data.noarch": Installed("2-1.el9, 3-1.el9", 4, whole=True),
    }


@pytest.mark.parametrize("said", ["a b c d e f", "garbage", "tool noarch 1-1 many", " ", "\x1b[0m"])
def test_an_rpm_that_a_package_replaced_is_not_believed(tmp_path: Path, said: str) -> None:
    with pytest.raises(WorkError, match="rpm of the root says") as caught:
        find_installed(SayingWorkspace(tmp_path, (), said, 0, tmp_path, Pool(tmp_path, tmp_path)))
    assert "\x1b" not in str(caught.value)


def test_the_list_of_packages_has_each_with_its_state(root: Path) -> None:
    listed = workspace_of(root).ask(LIST_PACKAGES).stdout.splitlines()
    assert {"tool installed", "data installed"} <= set(listed)


def test_a_root_without_a_database_has_nothing(tmp_path: Path) -> None:
    assert read_shipped(Root(tmp_path)) == {}
    assert read_versions(Root(tmp_path)) == {}


def test_the_database_may_be_elsewhere(tmp_path: Path) -> None:
    write_database(tmp_path / "usr/lib/sysimage/rpm/rpmdb.sqlite", [package()])
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/rpm").symlink_to("../../usr/lib/sysimage/rpm")
    assert "/usr/lib/sysimage/rpm/rpmdb.sqlite" in read_shipped(Root(tmp_path))


def test_a_link_out_of_the_root_leads_to_nothing(tmp_path: Path) -> None:
    write_database(tmp_path / "host/rpmdb.sqlite", [package()])
    (tmp_path / "root/var/lib").mkdir(parents=True)
    (tmp_path / "root/var/lib/rpm").symlink_to(tmp_path / "host")
    assert read_versions(Root(tmp_path / "root")) == {}


def package(name: str = "x", more: Values | None = None) -> bytes:
    """The header of a package."""
    named: Values = {RpmTag.NAME: name, RpmTag.VERSION: "1", RpmTag.RELEASE: "2"}
    return render_blob({**named, **(more or {})})


def shipping(name: str, *states: int, flags: int = 0, digest: str = "") -> bytes:
    """The header of a package with a file in each of these states."""
    modes = {f"/usr/{index}": FILE for index in range(len(states))}
    files = files_of(modes, filestates=states, fileflags=[flags] * len(states))
    digests: Values = {RpmTag.FILEDIGESTS: [digest] * len(states), RpmTag.FILEDIGESTALGO: 8}
    return package(name, more={**files, **digests})


@pytest.mark.parametrize("state", [RpmState.REPLACED, RpmState.WRONG_COLOR])
@pytest.mark.parametrize("first", [True, False])
def test_a_file_is_that_of_the_package_which_has_it(
    tmp_path: Path,
    state: int,
    first: bool,  # noqa: FBT001 - a column
) -> None:
    blobs = [shipping("gone", state, state), shipping("there", RpmState.NORMAL)]
    write_database(tmp_path / DATABASE[1:], blobs if first else blobs[::-1])
    found = read_shipped(Root(tmp_path))
    assert (found["/usr/0"].package, found["/usr/1"].package) == ("there", "gone")


def test_a_file_that_was_left_out_is_shipped_but_a_ghost_is_not(tmp_path: Path) -> None:
    digest = "ab" * 32
    blobs = [
        shipping("a", RpmState.NOT_INSTALLED, flags=CONFIG, digest=digest),
        shipping("b", 0, 0, flags=GHOST, digest=digest),
    ]
    write_database(tmp_path / DATABASE[1:], blobs)
    checksum = Checksum(ChecksumKind.SHA256, digest)
    assert read_shipped(Root(tmp_path)) == {
        DATABASE: ShippedFile("rpm"),
        "/usr/0": ShippedFile("a", checksum, config=True),
    }


def test_folders_and_links_have_no_checksum(tmp_path: Path) -> None:
    values = files_of({"/usr/folder": FOLDER, "/usr/link": LINK})
    digests: Values = {RpmTag.FILEDIGESTS: ["ab" * 32] * 2, RpmTag.FILEDIGESTALGO: 8}
    write_database(tmp_path / DATABASE[1:], [package(more={**values, **digests})])
    found = read_shipped(Root(tmp_path))
    assert found["/usr/folder"] == found["/usr/link"] == ShippedFile("x")


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"x" * 100, 7, None, "text", package()[:-1],
        package(more={**files_of({"/a": FILE}), RpmTag.DIRINDEXES: [9]}),
    ],
)  # fmt: skip
def test_a_header_that_is_none_is_an_error_with_its_place(tmp_path: Path, blob: object) -> None:
    write_database(tmp_path / DATABASE[1:], [package(), blob])
    with pytest.raises(WorkError, match="not a readable database of rpm") as caught:
        read_shipped(Root(tmp_path))
    assert caught.value.faults[0].where == DATABASE


def test_a_name_without_an_end_is_an_error(tmp_path: Path) -> None:
    blob = struct.pack(">IIIIII", 1, 1, RpmTag.NAME, 6, 0, 1) + b"x"
    write_database(tmp_path / DATABASE[1:], [blob])
    for read in (read_shipped, read_versions):
        with pytest.raises(WorkError, match="the texts of tag 1000 have no end"):
            read(Root(tmp_path))


VIEW = (
    "CREATE VIEW Packages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT zeroblob(1000000) AS blob FROM n"
)
VIRTUAL = "CREATE VIRTUAL TABLE Packages USING fts5(blob)"
GENERATED = "CREATE TABLE Packages (hnum INTEGER, blob AS (zeroblob(100000000)))"


@pytest.mark.parametrize("made", [VIEW, VIRTUAL, GENERATED, "CREATE TABLE Other (blob)"])
def test_a_table_that_makes_up_its_rows_is_not_read(tmp_path: Path, made: str) -> None:
    path = tmp_path / DATABASE[1:]
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(made)
        if made == GENERATED:
            connection.execute("INSERT INTO Packages (hnum) VALUES (1)")
    with pytest.raises(WorkError, match=r"it has no table of packages|too big"):
        read_versions(Root(tmp_path))


def pages(path: Path, change: int) -> Iterator[tuple[int, bytearray]]:
    """The pages of a database that have pages of rows below them; changes are written."""
    content = bytearray(path.read_bytes())
    size = struct.unpack_from(">H", content, 16)[0]
    for start in range(0, len(content), size):
        if content[start] == change:
            page = content[start : start + size]
            yield start // size + 1, page
            content[start : start + size] = page
    path.write_bytes(content)


def test_a_database_that_goes_in_circles_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / DATABASE[1:]
    write_database(path, [package(f"x{number}") for number in range(500)])
    for number, page in pages(path, 5):
        cells = struct.unpack_from(">H", page, 3)[0]
        for index in range(cells):
            place = struct.unpack_from(">H", page, 12 + 2 * index)[0]
            struct.pack_into(">I", page, place, number)
    with pytest.raises(WorkError, match="malformed"):
        read_versions(Root(tmp_path))


def test_a_database_that_has_its_pages_many_times_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.rpm.database.MOST_PACKAGES", 100)
    write_database(tmp_path / DATABASE[1:], [package()] * 101)
    with pytest.raises(WorkError, match="its packages are too large, or too many"):
        read_versions(Root(tmp_path))


def test_a_database_that_takes_too_long_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.rpm.database.STEPS", 10)
    write_database(tmp_path / DATABASE[1:], [package()] * 1000)
    with pytest.raises(WorkError, match="interrupted"):
        read_versions(Root(tmp_path))


def test_paths_that_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.rpm.database.MOST_PATHS", 100)
    write_database(tmp_path / DATABASE[1:], [shipping(f"x{n}", *[0] * 10) for n in range(2)])
    with pytest.raises(WorkError, match="its paths have more than 100 characters"):
        read_shipped(Root(tmp_path))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", bytes(4096), b"x" * 9999])
def test_what_is_no_database_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / DATABASE[1:]
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(WorkError, match="not a readable database of rpm"):
        read_versions(Root(tmp_path))


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / DATABASE[1:]).mkdir(parents=True)
    with pytest.raises(WorkError, match="it is no file"):
        read_versions(Root(tmp_path))


def test_changes_that_are_not_in_the_database_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / DATABASE[1:]
    write_database(path, [package()])
    log = path.with_name("rpmdb.sqlite-wal")
    log.touch()
    assert read_versions(Root(tmp_path)) == {"x": "1-2"}
    log.write_bytes(b"x")
    with pytest.raises(WorkError, match="rpm did not finish") as caught:
        read_versions(Root(tmp_path))
    assert caught.value.faults[0].hint.startswith("run `rpm --initdb`")
