# SPDX-License-Identifier: Apache-2.0
"""Packages and databases for tests: real ones as rpm makes them, and others from bytes."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.families.rpm.header import LEAD, LEAD_MAGIC, MAGIC, RpmTag
from imagebuilder.process import Completed, Word, is_installed, run
from imagebuilder.workspace import Workspace
from tests.fixtures.rpm_repository import Rpm, make_rpm

# Debian's rpm asks whether somebody means it.
FOREIGN = {"RPM_FORCE_DEBIAN": "1", "SOURCE_DATE_EPOCH": "1700000000"}
# Numbers, texts or bytes by tag.
Values = dict[int, Any]


@dataclass(frozen=True)
class Marked(Rpm):
    """A package some of whose files have marks, such as `%config` or `%ghost`, by path."""

    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> Iterator[str]:
        for line in super().listed:
            yield f"{self.marks[line]} {line}" if line in self.marks else line


def make_rpms(folder: Path, *rpms: Rpm) -> list[Path]:
    """Build packages; returns their paths.  Skips the test on a host without rpmbuild."""
    if not is_installed("rpmbuild"):
        pytest.skip("rpmbuild is not installed")
    paths = [folder / rpm.file_name for rpm in rpms]
    for rpm, path in zip(rpms, paths, strict=True):
        make_rpm(rpm, path)
    return paths


def ask_rpm(*words: Word) -> str:
    """What the host's rpm answers."""
    return run(["rpm", *words], env=FOREIGN).stdout


def add_to_database(root: Path, *paths: Path) -> Path:
    """Let rpm add packages to the database of a root, without their files."""
    database = root / "var/lib/rpm"
    database.mkdir(parents=True, exist_ok=True)
    options = ("--install", "--justdb", "--nodeps", "--noscripts", "--noplugins", "--nosignature")
    ask_rpm("--dbpath", database, *options, "--oldpackage", "--ignorearch", *paths)
    return database / "rpmdb.sqlite"


@dataclass(frozen=True)
class DatabaseWorkspace(Workspace):
    """A workspace that lets the host's rpm ask the database of the root `work`."""

    def ask(self, argv: Sequence[Word], *, check: bool = True) -> Completed:
        assert argv[0] == "rpm"
        words = ["rpm", "--dbpath", self.work / "var/lib/rpm", *argv[1:]]
        return run(words, env=FOREIGN, check=check)


def render_values(values: Values) -> tuple[bytes, bytes]:
    """The entries and the store of a header with these values."""
    index, store = bytearray(), bytearray()
    for tag, value in values.items():
        listed = [value] if isinstance(value, int | str) else value
        if isinstance(value, bytes):
            kind, count, content = 7, len(value), value
        elif all(isinstance(each, int) for each in listed):
            store += bytes(-len(store) % 8)
            kind, count = (3, len(listed)) if tag == RpmTag.FILEMODES else (4, len(listed))
            content = struct.pack(f">{count}{'H' if kind == 3 else 'I'}", *listed)
        else:
            kind, count = (6 if isinstance(value, str) else 8), len(listed)
            content = b"".join(f"{text}\0".encode() for text in listed)
        index += struct.pack(">IIII", tag, kind, len(store), count)
        store += content
    return bytes(index), bytes(store)


def render_blob(values: Values) -> bytes:
    """A header as rpm's database has it."""
    index, store = render_values(values)
    return struct.pack(">II", len(index) // 16, len(store)) + index + store


def render_package(values: Values, payload: bytes = b"") -> bytes:
    """A package file of a header with these values."""
    header = MAGIC + bytes(4) + render_blob(values)
    signature = MAGIC + bytes(4) + render_blob({1000: len(header) + len(payload)})
    signature += bytes(-len(signature) % 8)
    return LEAD_MAGIC.ljust(LEAD, b"\0") + signature + header + payload


def files_of(modes: Mapping[str, int], **more: Sequence[int]) -> Values:
    """The values of files with these modes, by absolute path; `more` are tags by name."""
    folders = [path.rpartition("/")[0] + "/" for path in modes]
    return {
        RpmTag.BASENAMES: [path.rpartition("/")[2] for path in modes],
        RpmTag.DIRNAMES: folders,
        RpmTag.DIRINDEXES: list(range(len(folders))),
        RpmTag.FILEMODES: list(modes.values()),
        **{RpmTag[name.upper()]: values for name, values in more.items()},
    }


def write_database(path: Path, blobs: Sequence[object]) -> None:
    """A database with these in the place of headers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob)")
        connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(b,) for b in blobs])
