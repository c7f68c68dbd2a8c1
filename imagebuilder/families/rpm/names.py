# SPDX-License-Identifier: Apache-2.0
"""The units and accounts that packages of the pool may add.

A header lists all files, scripts and capabilities; only the aliases of units and the accounts of
sysusers.d(5) are in the payload.  That is a cpio archive, whose entries are those of newc
(imagebuilder/cpio.py) or, if a file is larger than 4 GiB, only the file's number in the header:

    07070X      8 hexadecimal digits; padding to 4 bytes; content; padding to 4 bytes

(rpmcpioStrippedHeaderWrite() in lib/cpio.c, iterReadArchiveNext() in lib/rpmfi.c).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from imagebuilder.cpio import HEADER, MAGIC, MOST_NAME, TRAILER, number
from imagebuilder.errors import WorkError
from imagebuilder.families import compressed
from imagebuilder.families.rpm.header import RpmHeader, RpmTag, read_headers
from imagebuilder.files import Content, plain_file, write_files
from imagebuilder.lock.kept import (
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

STRIPPED_MAGIC, STRIPPED_HEADER = b"07070X", 14
ALIGNED = 4
GZIP_MAGIC = b"\x1f\x8b"
BLOCK = 1 << 20
MOST_FILES = 1 << 20
UNITS = re.compile(r"/systemd/(?:system|user)/|/etc/(?:rc\.d/)?init\.d/")
# sysusers.d(5), and the files of the package `setup`.
WITH_ACCOUNTS = re.compile(r"/sysusers\.d/[^/]+\.conf|/etc/(?:passwd|group)")
# What rpm 4.19 and later generate from sysusers.d(5).
PROVIDED = re.compile(r"(?:user|group)\(([^\s()]+)\)")


class PayloadFile(NamedTuple):
    """What comes next in a payload; `size` is that of its content there."""

    path: str
    size: int
    is_file: bool


def names_of(folder: Path, packages: Sequence[LockedPackage], *, whole: bool) -> list[Names]:
    """Family.names().  Raises WorkError for a package that is missing, or is none."""
    paths = [package_path(folder, package) for package in packages]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(partial(find_or_read, whole=whole), paths))
    write_files(content for _, new in found for content in new)
    return [names for names, _ in found]


def find_or_read(path: Path, *, whole: bool) -> tuple[Names, list[Content]]:
    """The names in a package, and the cache files that are still to be written."""
    known = find_kept(path.with_suffix(NAMES))
    if known is not None and ((names := parse_names(known)).whole or not whole):
        return names, []
    names = read_names(path, whole=whole)
    return names, [kept(path, NAMES, names.render())]


def read_names(path: Path, *, whole: bool) -> Names:
    """The names in a package file; those in its payload `whole` only.  Raises WorkError."""
    try:
        with plain_file(path) as stream:
            header = read_headers(stream).header
            names = names_in(header)
            return names if names.whole or not whole else complete(names, header, stream)
    except compressed.BROKEN as error:
        raise WorkError(f"not a readable package: {error}", where=os.fspath(path)) from error


def names_in(header: RpmHeader) -> Names:
    """The names in a header.  Raises ValueError."""
    entries = list(header.entries())
    provided = (PROVIDED.fullmatch(each) for each in header.provides)
    return Names(
        units_at(entry.path for entry in entries if UNITS.search(entry.path)),
        frozenset(match[1] for match in provided if match),
        frozenset[str]().union(*(words_in(script.encode()) for script in header.scripts)),
        whole=not any(is_telling(entry.path) for entry in entries if entry.is_file),
    )


def is_telling(path: str) -> bool:
    """Whether the content of a file may have names."""
    is_of_units = UNITS.search(path) and is_unit(path)
    return bool(is_of_units or WITH_ACCOUNTS.search(path))


def compressor_of(header: RpmHeader, stream: BufferedReader) -> str:
    """How a payload is compressed: zlib, and so rpm, also reads what is not."""
    if header.compressor in ("", "gzip"):
        return "gzip" if stream.peek(2).startswith(GZIP_MAGIC) else ""
    return header.compressor


def complete(names: Names, header: RpmHeader, stream: BufferedReader) -> Names:
    """`names` with those in the payload, where `stream` is.  Raises what is in BROKEN."""
    units, accounts = set(names.units), set(names.accounts)
    payload = compressed.unpack(compressor_of(header, stream), stream)
    for path, content in read_payload(cast(BinaryIO, payload), header, is_telling):
        if WITH_ACCOUNTS.search(path):
            accounts |= accounts_in(content)
        else:
            units |= aliases_in(content)
    return Names(frozenset(units), frozenset(accounts), names.words, whole=True)


def read_payload(
    payload: BinaryIO, header: RpmHeader, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """The wanted files of a payload, each with its content.  Raises what is in BROKEN."""
    if (form := header.text(RpmTag.PAYLOADFORMAT)) not in ("", "cpio"):
        raise ValueError(f"its payload has the unknown format {form}")
    numbered: list[PayloadFile] = []
    for count in range(MOST_FILES + 1):
        magic = read_exactly(payload, len(MAGIC))
        if magic == STRIPPED_MAGIC:
            numbered = numbered or list(number_files(header))
            found = read_stripped(payload, numbered)
        elif magic == MAGIC:
            found = read_newc(payload)
        else:
            raise ValueError(f"its payload has no file where the file {count} should begin")
        if found.path == f"/{decoded(TRAILER)}":
            return
        if found.is_file and wanted(found.path):
            if found.size > compressed.MOST_READ:
                raise ValueError(f"{found.path} has more than {compressed.MOST_READ} bytes")
            yield found.path, read_exactly(payload, found.size)
        else:
            skip(payload, found.size)
        skip(payload, -found.size % ALIGNED)
    raise ValueError(f"it has more than {MOST_FILES} files")


def read_newc(payload: BinaryIO) -> PayloadFile:
    """The next entry, whose magic number was read.  Raises ValueError."""
    rest = read_exactly(payload, HEADER - len(MAGIC))
    mode, size, length = (number(rest[at : at + 8]) for at in (8, 48, 88))
    if length > MOST_NAME:
        raise ValueError(f"a file has a name of {length} bytes")
    name = decoded(read_exactly(payload, length).rstrip(b"\0"))
    skip(payload, -(HEADER + length) % ALIGNED)
    return PayloadFile(f"/{name.removeprefix('./').lstrip('/')}", size, stat.S_ISREG(mode))


def read_stripped(payload: BinaryIO, numbered: Sequence[PayloadFile]) -> PayloadFile:
    """The same of an entry that has only the number of a file.  Raises ValueError."""
    index = number(read_exactly(payload, STRIPPED_HEADER - len(STRIPPED_MAGIC)))
    if index >= len(numbered):
        raise ValueError(f"its payload has a file {index} of {len(numbered)}")
    skip(payload, -STRIPPED_HEADER % ALIGNED)
    return numbered[index]


def number_files(header: RpmHeader) -> Iterator[PayloadFile]:
    """Files by their numbers in a header: the last of hard links has the content, links have what
    they lead to.  Raises ValueError.
    """
    entries = list(header.entries())
    devices, inodes = header.numbers(RpmTag.FILEDEVICES), header.numbers(RpmTag.FILEINODES)
    last: dict[tuple[int, int], int] = {}
    keys = list(zip(devices, inodes, strict=True)) or [(0, each) for each in range(len(entries))]
    for index, (entry, key) in enumerate(zip(entries, keys, strict=True)):
        if entry.is_file:
            last[key] = index
    for index, (entry, key) in enumerate(zip(entries, keys, strict=True)):
        has_content = last[key] == index if entry.is_file else stat.S_ISLNK(entry.mode)
        yield PayloadFile(entry.path, entry.size if has_content else 0, entry.is_file)


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Raises ValueError if it ends before."""
    found = bytearray()
    while len(found) < size:
        piece = stream.read(size - len(found))
        if not piece:
            raise ValueError("its payload is truncated")
        found += piece
    return bytes(found)


def skip(stream: BinaryIO, size: int) -> None:
    """Raises ValueError if it ends before."""
    while size:
        size -= len(read_exactly(stream, min(size, BLOCK)))
