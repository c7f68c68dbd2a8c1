# SPDX-License-Identifier: Apache-2.0
"""Read packages of the pool: their control records, and the units and accounts that they may add.

Reading a control archive takes 2 ms; starting dpkg-deb(1) for each of 200 packages took seconds.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self, cast

from imagebuilder.errors import WorkError
from imagebuilder.families import compressed
from imagebuilder.files import Content, plain_file, write_files
from imagebuilder.lock.kept import (
    CONTROL,
    NAMES,
    Names,
    accounts_in,
    aliases_in,
    decoded,
    find_kept,
    is_unit,
    kept,
    parse_names,
    units_at,
    words_in,
)
from imagebuilder.lock.pool import package_path
from imagebuilder.lock.types import LockedPackage

MAGIC = b"!<arch>\n"
HEADER = 60  # bytes before each member of an ar(5) archive
# What a package may have of files and of a header: each takes memory.  Far more than packages have.
MOST_FILES, MOST_HEADER = 1 << 20, 1 << 20
# Headers with a content that tarfile reads whole: names, and fields of pax(1).
LONG = (b"L", b"K", b"x", b"X", b"g")
BROKEN = (*compressed.BROKEN, tarfile.TarError)
# The programs that compress members, by suffix.
PROGRAMS = {".gz": "gzip", ".xz": "xz", ".lzma": "lzma", ".bz2": "bzip2", ".zst": "zstd"}
# Members of a control archive that are not scripts.
NO_SCRIPTS = ("control", "md5sums", "conffiles", "shlibs", "symbols", "triggers")
# A package with such a path may add more than its control archive lists.
TELLING = re.compile(r"systemd/|sysusers\.d/|base-passwd/|etc/init\.d/")
# sysusers.d(5), and what base-passwd makes /etc/passwd and /etc/group of.
WITH_ACCOUNTS = re.compile(r"sysusers\.d/.*\.conf$|base-passwd/.*\.master$")


def read_control(deb: Path) -> tuple[str, Names]:
    """The control record of a package, and the names in its control archive.  Raises WorkError."""
    with open_member(deb, "control") as archive:
        files = {
            posixpath.normpath(member.name): read_member(archive, member)
            for member in archive
            if member.isreg()
        }
    if "control" not in files:
        raise WorkError("not a readable package: it has no control file", where=str(deb))
    listed = decoded(files.get("md5sums", b"")).splitlines()
    paths = [line.partition("  ")[2] for line in listed] + decoded(
        files.get("conffiles", b"")
    ).split()
    scripts = (content for name, content in files.items() if name not in NO_SCRIPTS)
    words = frozenset[str]().union(*map(words_in, scripts))
    whole = bool(listed) and not any(map(TELLING.search, paths))
    return decoded(files["control"]), Names(units_at(paths), frozenset(), words, whole)


def read_names(deb: Path, control: Names) -> Names:
    """`control`, completed by the names in the package's files.  Raises WorkError."""
    units, accounts = set(control.units), set(control.accounts)
    with open_member(deb, "data") as archive:
        for member in archive:
            path = posixpath.normpath(member.name)
            units |= units_at([path])
            if member.isreg() and WITH_ACCOUNTS.search(path):
                accounts |= accounts_in(read_member(archive, member))
            elif member.isreg() and "systemd/" in path and is_unit(path):
                units |= aliases_in(read_member(archive, member))
    return replace(control, units=frozenset(units), accounts=frozenset(accounts), whole=True)


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The content of a regular file in an archive.  Raises ValueError if it is too large."""
    if member.size > compressed.MOST_READ:
        raise ValueError(f"{member.name} has more than {compressed.MOST_READ} bytes")
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read()


class DebMember(io.RawIOBase):
    """The next `size` bytes of a file."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(found)
        return found


class TarHeader(tarfile.TarInfo):
    """A header of a tar archive that is not larger than any header is."""

    # tarfile's source names this method as the one to override; new versions do not call frombuf().
    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        if self.type in LONG and self.size > MOST_HEADER:
            raise ValueError(f"a header has {self.size} bytes, of at most {MOST_HEADER}")
        return cast(Self, super()._proc_member(archive))  # type: ignore[misc]


class PackageFiles(tarfile.TarFile):
    """The files of an archive, of which it remembers each: they are not too many."""

    tarinfo = TarHeader
    asked = 0

    def next(self) -> tarfile.TarInfo | None:
        self.asked += 1
        if self.asked > MOST_FILES:
            raise ValueError(f"it has more than {MOST_FILES} files")
        return super().next()


@contextmanager
def open_member(deb: Path, name: str) -> Iterator[tarfile.TarFile]:
    """The files of the `control` or `data` archive of a package (deb(5)), each with its content
    until the next one.

    Nothing is written to a disk.  Raises WorkError if the file is not a package, or is one that was
    made to fill the memory.
    """
    try:
        with plain_file(deb) as stream:
            kind, size = find_member(stream, f"{name}.tar")
            packed = cast(BinaryIO, DebMember(stream, size))
            unpacked = compressed.unpack(PROGRAMS.get(kind, kind), packed)
            with PackageFiles.open(fileobj=unpacked, mode="r|") as archive:
                yield archive
    except BROKEN as error:
        raise WorkError(f"not a readable package: {error}", where=str(deb)) from error


def find_member(stream: BinaryIO, name: str) -> tuple[str, int]:
    """The suffix and size of a member of an ar(5) archive; the stream is then at its content.

    Raises ValueError.
    """
    if stream.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not start like one")
    while len(header := stream.read(HEADER)) == HEADER:
        found, size = header[:16].decode().rstrip(" /"), int(header[48:58])
        if found.startswith(name):
            return found.removeprefix(name), size
        if size < 0:  # it would be looked at for ever
            raise ValueError(f"{found} has {size} bytes")
        stream.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError(f"it has no {name}")


def control(debs: Path, package: LockedPackage) -> str:
    """The control record of a package in the pool.  Raises WorkError if it is missing."""
    deb = package_path(debs, package)
    if (known := find_kept(deb.with_suffix(CONTROL))) is not None:
        return known
    record, _ = read_control(deb)
    write_files([kept(deb, CONTROL, record)])
    return record


def names_of(debs: Path, packages: Sequence[LockedPackage], *, whole: bool = False) -> list[Names]:
    """The names in each package; with `whole` also those that only its files have.

    Raises WorkError for a package that is not in the pool.
    """
    paths = [package_path(debs, package) for package in packages]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(partial(find_or_read, whole=whole), paths))
    write_files(content for _, new in found for content in new)
    return [names for names, _ in found]


def find_or_read(deb: Path, *, whole: bool) -> tuple[Names, list[Content]]:
    """The names in a package, and the cache files that are still to be written."""
    known = find_kept(deb.with_suffix(NAMES))
    names, new = None if known is None else parse_names(known), []
    if names is None:
        record, names = read_control(deb)
        new = [kept(deb, CONTROL, record)]
    elif names.whole or not whole:
        return names, []
    if whole and not names.whole:
        names = read_names(deb, names)
    return names, [*new, kept(deb, NAMES, names.render())]
