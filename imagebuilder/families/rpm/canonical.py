# SPDX-License-Identifier: Apache-2.0
"""Make rpm's database in a layer the same on every builder.

sqlite writes its own version into the file, leaves parts of earlier records in its pages, and
counts rows at times that depend on its version.  Without all that rpm 4.18 and 4.20 write the same
bytes; 6.1 records more.

Scripts of packages have run in the root, and sqlite makes files beside a database: a copy elsewhere
is changed, and its content written back.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

from imagebuilder.families.rpm.database import (
    MOST_DATABASE,
    check_complete,
    find_database,
    limit_connection,
    unreadable,
)
from imagebuilder.files import scratch
from imagebuilder.limited import check_size
from imagebuilder.root import Root
from imagebuilder.workspace import Workspace

# What sqlite has counted to plan queries, which versions of it do at other times; without it, it
# plans by the number of pages.
STATISTICS = "sqlite_stat1"
# Of the file's header (https://sqlite.org/fileformat2.html): the number of changes, at which change
# the version was written, and that version.
CHANGES, WRITTEN = 24, struct.Struct(">II")
WRITTEN_AT = 92


def make_canonical(workspace: Workspace) -> None:
    """Write the database of a layer anew.  Raises WorkError if it cannot be read."""
    root = Root(workspace.tree)
    name = find_database(root)
    place = root.host(name) if name else None
    if place is None:
        return
    if not check_size(place, name, MOST_DATABASE):
        raise unreadable(name, "it is no file")
    check_complete(root, name)
    with scratch(workspace.work, f"{workspace.upper}.database-") as folder:
        copy = folder / place.name
        shutil.copyfile(place, copy)
        try:
            write_anew(copy)
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise unreadable(name, error) from error
        forget_versions(copy)
        shutil.copyfile(copy, place)


def write_anew(database: Path) -> None:
    """Write all pages of a database anew.  Raises ValueError and sqlite3.Error."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        limit_connection(connection)
        connection.execute("PRAGMA journal_mode = DELETE")
        find = "SELECT 1 FROM sqlite_schema WHERE name = ?"
        if connection.execute(find, [STATISTICS]).fetchone():
            connection.execute(f"DELETE FROM {STATISTICS}")
        connection.set_progress_handler(None, 0)  # this takes as long as the file is large
        connection.execute("VACUUM")


def forget_versions(database: Path) -> None:
    """Remove the number of changes and the version of sqlite from a database's header."""
    with database.open("r+b") as stream:
        stream.seek(CHANGES)
        stream.write(struct.pack(">I", 1))
        stream.seek(WRITTEN_AT)
        stream.write(WRITTEN.pack(1, 0))
