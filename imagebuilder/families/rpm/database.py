# SPDX-License-Identifier: Apache-2.0
"""Query rpm's database inside a root, or read it from outside.

A root is somebody's: its database is opened as a file that does not change, so that nothing is
written beside it, and only the rows of one table are read.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Installed
from imagebuilder.families.rpm.header import MOST_STORE, RpmHeader, RpmState, checksum_of
from imagebuilder.families.rpm.header import parse_header as parse
from imagebuilder.families.shipped import RootFiles, ShippedFile, places_in
from imagebuilder.limited import check_size
from imagebuilder.untrusted import fit
from imagebuilder.workspace import Workspace

# Enterprise Linux 9; Fedora, and Enterprise Linux from 10 on.
DATABASE = "/var/lib/rpm/rpmdb.sqlite"
DATABASES = (DATABASE, "/usr/lib/sysimage/rpm/rpmdb.sqlite")
# A database has 60 MiB for 600 packages.
MOST_DATABASE, MOST_PACKAGES = 1 << 30, 1 << 16
MOST_PATHS = 256 << 20  # characters
# A malicious database may have any number of rows on few pages, and seek one without an end.
STEPS, MOST_CALLS = 100_000, 100
# Keys that rpm trusts are in its database, but are no packages.
KEY = "gpg-pubkey"
FORM = "%{NAME} %{ARCH} %{EPOCHNUM}:%{VERSION}-%{RELEASE} %{LONGSIZE}\\n"
ROW = re.compile(r"(\S+) (\S+) (\S+) ([0-9]{1,18})")
LIST_PACKAGES = ("rpm", "--query", "--all", "--queryformat", "%{NAME} installed\\n")
# Their files are not where the package has them, but another package's are.
ELSEWHERE = frozenset((RpmState.REPLACED, RpmState.WRONG_COLOR))


def find_installed(workspace: Workspace) -> Mapping[str, Installed]:
    """The packages in a root, by `NAME.ARCH`.  A package that is installed in several versions, as
    kernels may be, has all of them as its version.

    Scripts of packages may have replaced rpm and its database: raises WorkError for other words.
    """
    shown = workspace.ask(["rpm", "--query", "--all", "--queryformat", FORM]).stdout
    found: dict[str, list[tuple[str, int]]] = {}
    for line in shown.splitlines():
        match = ROW.fullmatch(line)
        if match is None:
            raise unreadable(DATABASE, f"rpm of the root says {fit(line)!r} of a package")
        name, architecture, version, size = match.groups()
        if name != KEY:
            each = version.removeprefix("0:"), int(size)
            found.setdefault(f"{name}.{architecture}", []).append(each)
    return {
        identity: Installed(
            ", ".join(sorted(version for version, _ in each)),
            sum(size for _, size in each),
            whole=True,
        )
        for identity, each in found.items()
    }


def read_shipped(root: RootFiles) -> Mapping[str, ShippedFile]:
    """Family.shipped_files() from the headers in rpm's database, which has its own files.

    A %ghost file is not shipped: scripts or people make it.  Raises WorkError.
    """
    name = find_database(root)
    if not name:
        return {}
    place = places_in(root)
    found: dict[str, ShippedFile] = {name: ShippedFile("rpm")}
    total = 0
    for header in read_database(root, name):
        try:
            entries, kind = list(header.entries()), header.digest_kind
            package = header.name
        except ValueError as error:
            raise unreadable(name, error) from error
        total += sum(len(entry.path) for entry in entries)
        if total > MOST_PATHS:
            raise unreadable(name, f"its paths have more than {MOST_PATHS} characters")
        for entry in entries:
            path = place(entry.path)
            if entry.is_ghost or (entry.state in ELSEWHERE and path in found):
                continue
            found[path] = ShippedFile(package, checksum_of(entry, kind), entry.is_config)
    return found


def read_versions(root: RootFiles) -> Mapping[str, str]:
    """The versions of the installed packages, by name.  Raises WorkError."""
    name = find_database(root)
    try:
        return {header.name: header.evr for header in read_database(root, name)} if name else {}
    except ValueError as error:
        raise unreadable(name, error) from error


def find_database(root: RootFiles) -> str:
    """The path of rpm's database in a root, "" if it has none."""
    return next(filter(None, map(root.resolve, DATABASES)), "")


def read_database(root: RootFiles, name: str) -> Iterator[RpmHeader]:
    """The header of each package in a root.  Raises WorkError."""
    place = root.host(name)
    if place is None or not check_size(place, name, MOST_DATABASE):
        raise unreadable(name, "it is no file")
    check_complete(root, name)
    total = 0
    try:
        with closing(open_database(place)) as connection:
            for number, (blob,) in enumerate(connection.execute("SELECT blob FROM Packages")):
                total += len(blob)
                if total > MOST_DATABASE or number >= MOST_PACKAGES:
                    raise ValueError("its packages are too large, or too many")  # noqa: TRY301
                header = parse(blob)
                if header.name != KEY:
                    yield header
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise unreadable(name, error) from error


def check_complete(root: RootFiles, name: str) -> None:
    """Raise WorkError if changes of the database are only beside it, in its write-ahead log."""
    log = root.host(f"{name}-wal")
    if log is not None and log.lstat().st_size:
        what = f"rpm did not finish: changes of its database are only in {name}-wal"
        raise WorkError(what, where=name, hint="run `rpm --initdb` in the step that ended rpm")


def open_database(place: Path) -> sqlite3.Connection:
    """A database that is read alone.  Raises sqlite3.Error, and ValueError if it is not rpm's."""
    connection = sqlite3.connect(f"file:{quote(os.fspath(place))}?immutable=1", uri=True)
    try:
        limit_connection(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def limit_connection(connection: sqlite3.Connection) -> None:
    """Let a malicious database take little time and memory.

    Raises sqlite3.Error, and ValueError if it is not rpm's.
    """
    connection.text_factory = bytes
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_STORE)
    calls = iter(range(MOST_CALLS))
    connection.set_progress_handler(lambda: next(calls, None) is None, STEPS)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    # A view or a virtual table may do anything, and has no page of its own.
    find = "SELECT 1 FROM sqlite_schema WHERE name = 'Packages' AND type = 'table' AND rootpage > 0"
    if connection.execute(find).fetchone() is None:
        raise ValueError("it has no table of packages")


def unreadable(name: str, why: object) -> WorkError:
    hint = "make sure that no step changes or removes the database"
    return WorkError(f"not a readable database of rpm: {why}", where=name, hint=hint)
