# SPDX-License-Identifier: Apache-2.0
"""Read packages of the pool: their control records, and the units and accounts that they may add.

Reading a control archive takes 2 ms; starting dpkg-deb(1) for each of 200 packages took seconds.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self, cast

import zstandard

from imagebuilder.errors import WorkError
from imagebuilder.files import Content, plain_file, write_files
from imagebuilder.lock.kept import CONTROL, NAMES, Names, aliases_in, find_kept, kept, parse_names
from imagebuilder.lock.pool import package_path
from imagebuilder.lock.types import LockedPackage

MAGIC = b"!<arch>\n"
HEADER = 60  # bytes before each member of an ar(5) archive
# Far more than a file has that is read whole: a few bytes may be unpacked to any number.
MOST_READ = 64 << 20
# What a member may unpack to, and how many files it may have: it goes to no disk, but takes time
# and, for each file and each header, memory.  Far more than packages have.
MOST_UNPACKED, MOST_FILES, MOST_HEADER = 64 << 30, 1 << 20, 1 << 20
# Headers with a content that tarfile reads whole: names, and fields of pax(1).
LONG = (b"L", b"K", b"x", b"X", b"g")
BROKEN = (
    OSError, ValueError, EOFError,
    tarfile.TarError, lzma.LZMAError, zlib.error, zstandard.ZstdError,
)  # fmt: skip
INIT = "etc/init.d/"
UNIT = re.compile(
    r"[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|target|path|mount|automount|swap|slice|scope)"
)
WORD = re.compile(rb"[A-Za-z0-9_.:@\\-]{2,}")
# Members of a control archive that are not scripts.
NO_SCRIPTS = ("control", "md5sums", "conffiles", "shlibs", "symbols", "triggers")
# A package with such a path may add more than its control archive lists.
TELLING = re.compile(r"systemd/|sysusers\.d/|base-passwd/|etc/init\.d/")
# sysusers.d(5), and what base-passwd makes /etc/passwd and /etc/group of.
WITH_ACCOUNTS = re.compile(r"sysusers\.d/.*\.conf$|base-passwd/.*\.master$")
ACCOUNT = re.compile(rb"^(?:[ugm][!-]*[ \t]+\"?)?([a-z_][a-z0-9_-]*)", re.M)


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
    words = {decoded(word) for script in scripts for word in WORD.findall(script)}
    whole = bool(listed) and not any(map(TELLING.search, paths))
    return decoded(files["control"]), Names(units_at(paths), frozenset(), frozenset(words), whole)


def read_names(deb: Path, control: Names) -> Names:
    """`control`, completed by the names in the package's files.  Raises WorkError."""
    units, accounts = set(control.units), set(control.accounts)
    with open_member(deb, "data") as archive:
        for member in archive:
            path = posixpath.normpath(member.name)
            units |= units_at([path])
            if member.isreg() and WITH_ACCOUNTS.search(path):
                accounts |= {
                    decoded(name) for name in ACCOUNT.findall(read_member(archive, member))
                }
            elif member.isreg() and "systemd/" in path and is_unit(path):
                units |= aliases_in(read_member(archive, member))
    return replace(control, units=frozenset(units), accounts=frozenset(accounts), whole=True)


def is_unit(path: str) -> bool:
    return UNIT.fullmatch(posixpath.basename(path)) is not None


def units_at(paths: Iterable[str]) -> frozenset[str]:
    """The units among these paths, in any folder, and those of init scripts."""
    return frozenset(
        posixpath.basename(path) + (".service" if INIT in path else "")
        for path in paths
        if INIT in path or is_unit(path)
    )


def decoded(found: bytes) -> str:
    return found.decode(errors="replace")


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The content of a regular file in an archive.  Raises ValueError if it is too large."""
    if member.size > MOST_READ:
        raise ValueError(f"{member.name} has more than {MOST_READ} bytes")
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


class Unpacked(io.RawIOBase):
    """What a decompressor yields; raises ValueError after MOST_UNPACKED bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, MOST_UNPACKED

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(size)
        self._left -= len(found)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {MOST_UNPACKED} bytes")
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
            unpacked = Unpacked(unpack(kind, cast(BinaryIO, DebMember(stream, size))))
            with PackageFiles.open(fileobj=unpacked, mode="r|") as archive:
                yield archive
    except BROKEN as error:
        raise WorkError(f"not a readable package: {error}", where=str(deb)) from error


def unpack(kind: str, packed: BinaryIO) -> BinaryIO:
    """What is in a member with the suffix `kind`, as it is read.  Raises ValueError."""
    if kind == "":
        return packed
    if kind == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=packed))
    if kind in (".xz", ".lzma"):
        return cast(BinaryIO, lzma.LZMAFile(packed))
    if kind == ".bz2":
        return cast(BinaryIO, bz2.BZ2File(packed))
    if kind == ".zst":
        whole = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        return cast(BinaryIO, whole)
    raise ValueError(f"it is compressed in an unknown way: {kind}")


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
