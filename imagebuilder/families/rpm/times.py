# SPDX-License-Identifier: Apache-2.0
"""Make rpm's database in a layer the same on every builder and at any time.

rpm records when it installed a package.  4.18 and newer take that from SOURCE_DATE_EPOCH, but that
of Enterprise Linux 9 (4.16), which installs the layers above the first, does not.  What sqlite
leaves of earlier records in its pages, and its own version in the file's header, differ too.

Scripts of packages have run in the root, and sqlite makes files beside a database: a copy elsewhere
is changed, and its content written back.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from imagebuilder.families.protocol import Packages
from imagebuilder.families.rpm.database import (
    MOST_DATABASE,
    check_complete,
    find_database,
    limit_connection,
    unreadable,
)
from imagebuilder.families.rpm.header import RpmTag, parse_header
from imagebuilder.files import scratch
from imagebuilder.limited import check_size
from imagebuilder.root import Root
from imagebuilder.workspace import Workspace

TIMES = (RpmTag.INSTALLTIME, RpmTag.INSTALLTID)
INT32 = 4
# Of the file's header (https://sqlite.org/fileformat2.html): the number of changes, at which change
# the version was written, and that version.
CHANGES, WRITTEN = 24, struct.Struct(">II")
WRITTEN_AT = 92


def settle_times(added: Packages, workspace: Workspace) -> None:
    """Date the packages that a step has added by the layer's epoch.  Raises WorkError."""
    root = Root(workspace.tree)
    name = find_database(root)
    place = root.host(name) if name else None
    if place is None:
        return
    if not check_size(place, name, MOST_DATABASE):
        raise unreadable(name, "it is no file")
    check_complete(root, name)
    identities = {f"{each.name}.{each.architecture}" for each in added.packages}
    with scratch(workspace.work, f"{workspace.upper}.times-") as folder:
        copy = folder / place.name
        shutil.copyfile(place, copy)
        try:
            date_packages(copy, identities, added.epoch)
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise unreadable(name, error) from error
        forget_versions(copy)
        shutil.copyfile(copy, place)


def date_packages(database: Path, identities: Collection[str], epoch: int) -> None:
    """Date these packages (NAME.ARCH), and write all pages anew.

    Raises ValueError and sqlite3.Error.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        limit_connection(connection)
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN")
        rows = connection.execute("SELECT hnum, blob FROM Packages").fetchall()
        for number, blob in rows:
            header = parse_header(blob)
            if f"{header.name}.{header.architecture}" in identities:
                dated = (with_times(blob, epoch), number)
                connection.execute("UPDATE Packages SET blob = ? WHERE hnum = ?", dated)
                keyed = (struct.pack("=I", epoch), number)
                connection.execute("UPDATE Installtid SET key = ? WHERE hnum = ?", keyed)
        if connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = ?", [STATISTICS]
        ).fetchone():
            connection.execute(f"DELETE FROM {STATISTICS}")
        connection.execute("COMMIT")
        connection.set_progress_handler(None, 0)  # this takes as long as the file is large
        connection.execute("VACUUM")


def with_times(blob: bytes, epoch: int) -> bytes:
    """A header with both times set to `epoch`.  Raises ValueError."""
    header, changed = parse_header(blob), bytearray(blob)
    for tag in TIMES:
        entry = header.index.get(tag)
        if entry is None or (entry.kind, entry.values) != (INT32, 1):
            raise ValueError(f"{header.name} has no time of its installation")
        start = len(blob) - len(header.store) + entry.offset
        struct.pack_into(">I", changed, start, epoch)
    return bytes(changed)


def forget_versions(database: Path) -> None:
    """Remove the number of changes and the version of sqlite from a database's header."""
    with database.open("r+b") as stream:
        stream.seek(CHANGES)
        stream.write(struct.pack(">I", 1))
        stream.seek(WRITTEN_AT)
        stream.write(WRITTEN.pack(1, 0))
