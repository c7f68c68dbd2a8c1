# SPDX-License-Identifier: Apache-2.0
"""Read the headers of RPMs, in files and in rpm's database, without rpm.

PyPI's rpmfile reads no header of the database, and allocates what a header says it has.  A header
takes 0.1 ms, starting rpm(8) for a package 13 ms.

    file        lead (96 bytes), signature header, padding to 8 bytes, header, payload
    header      MAGIC, 4 reserved bytes, number of entries, bytes of the store; entries; store
    entry       tag, type, offset in the store, number of values; 32 bits each, big-endian
    database    a header without MAGIC and the reserved bytes; rpm added entries at its end

rpm's documentation: docs/manual/format_v4.md, lib/header.c, include/rpm/rpmtag.h.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from imagebuilder.errors import WorkError
from imagebuilder.families.shipped import Checksum, ChecksumKind
from imagebuilder.files import plain_file

LEAD_MAGIC, LEAD = b"\xed\xab\xee\xdb", 96
MAGIC = b"\x8e\xad\xe8\x01"
ALIGNED = 8
# rpm's own limit of entries.  It allows stores of 256 MiB, but large packages have 10 MiB.
MOST_ENTRIES, MOST_STORE = 0xFFFF, 64 << 20
MOST_VALUES = 1 << 20  # of one tag: packages have a hundred thousand files at most
MOST_PATHS = 256 << 20  # characters: a folder of any length may be said of every file
# The bytes of a value by type; texts end with a zero byte.
CHAR, INT64, STRING, BINARY, STRINGS, TEXTS = 1, 5, 6, 7, 8, 9
WIDTHS = {0: 0, CHAR: 1, 2: 1, 3: 2, 4: 4, INT64: 8, STRING: 1, BINARY: 1, STRINGS: 1, TEXTS: 1}
LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
# RPMFILE_CONFIG, RPMFILE_GHOST (rpmfiles.h).
CONFIG, GHOST = 1 << 0, 1 << 6
# PGPHASHALGO_* (rpmpgp.h): other digests are not recorded as checksums.
DIGESTS = {1: ChecksumKind.MD5, 8: ChecksumKind.SHA256}
DIGEST_SIZES = {ChecksumKind.MD5: 32, ChecksumKind.SHA256: 64}
HEX = re.compile(r"[0-9a-f]+")


class RpmTag(IntEnum):
    """What a header says (rpmtag.h)."""

    NAME = 1000
    VERSION = 1001
    RELEASE = 1002
    EPOCH = 1003
    INSTALLTIME = 1008
    SIZE = 1009
    ARCH = 1022
    PREIN = 1023
    POSTIN = 1024
    FILESIZES = 1028
    FILESTATES = 1029
    FILEMODES = 1030
    FILEDIGESTS = 1035
    FILELINKTOS = 1036
    FILEFLAGS = 1037
    PROVIDENAME = 1047
    TRIGGERSCRIPTS = 1065
    FILEDEVICES = 1095
    FILEINODES = 1096
    DIRINDEXES = 1116
    BASENAMES = 1117
    DIRNAMES = 1118
    PAYLOADFORMAT = 1124
    PAYLOADCOMPRESSOR = 1125
    INSTALLTID = 1128
    PRETRANS = 1151
    POSTTRANS = 1152
    LONGFILESIZES = 5008
    LONGSIZE = 5009
    FILEDIGESTALGO = 5011
    FILETRIGGERSCRIPTS = 5066
    TRANSFILETRIGGERSCRIPTS = 5076


class SignatureTag(IntEnum):
    """What a signature header says: the bytes of header and payload."""

    LONGSIGSIZE = 270
    SIGSIZE = 1000


# Scripts that run when a package is installed.
SCRIPTS = (
    RpmTag.PRETRANS, RpmTag.PREIN, RpmTag.POSTIN, RpmTag.POSTTRANS, RpmTag.TRIGGERSCRIPTS,
    RpmTag.FILETRIGGERSCRIPTS, RpmTag.TRANSFILETRIGGERSCRIPTS,
)  # fmt: skip


class RpmState(IntEnum):
    """What became of a file (rpmfileState in rpmfiles.h)."""

    NORMAL = 0
    REPLACED = 1  # another package's file is in its place
    NOT_INSTALLED = 2  # left out, as documentation may be
    NET_SHARED = 3
    WRONG_COLOR = 4  # the file of another word size is in its place


class RpmEntry(NamedTuple):
    """A file, folder or link of a package; `size` is 0 for folders."""

    path: str
    mode: int
    size: int
    flags: int
    state: int
    digest: str

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_config(self) -> bool:
        return bool(self.flags & CONFIG)

    @property
    def is_ghost(self) -> bool:
        """Whether it belongs to the package, which does not have it."""
        return bool(self.flags & GHOST)


class IndexEntry(NamedTuple):
    """Where the values of a tag are in the store, and how many."""

    kind: int
    offset: int
    values: int


@dataclass(frozen=True)
class RpmHeader:
    """A header; what it lacks is "", 0 or empty.  Values are read when asked for, and any of these
    functions may raise ValueError: then the header is damaged, or was made to do damage.
    """

    index: Mapping[int, IndexEntry]
    store: bytes

    def texts(self, tag: int) -> list[str]:
        """What is not in the builder's encoding is replaced, as in text_of()."""
        entry = self.index.get(tag)
        if entry is None or entry.kind not in (STRING, STRINGS, TEXTS):
            return []
        count = 1 if entry.kind == STRING else entry.values
        found = self.store[entry.offset :].split(b"\0", count)
        if len(found) <= count:
            raise ValueError(f"the texts of tag {int(tag)} have no end")
        encoding = sys.getfilesystemencoding()
        return [text.decode(encoding, errors="replace") for text in found[:count]]

    def text(self, tag: int) -> str:
        return next(iter(self.texts(tag)), "")

    def numbers(self, tag: int) -> tuple[int, ...]:
        entry = self.index.get(tag)
        if entry is None or not CHAR <= entry.kind <= INT64:
            return ()
        form = f">{entry.values}{LETTERS[WIDTHS[entry.kind]]}"
        return struct.unpack_from(form, self.store, entry.offset)

    def number(self, tag: int) -> int:
        return next(iter(self.numbers(tag)), 0)

    @property
    def name(self) -> str:
        return self.text(RpmTag.NAME)

    @property
    def architecture(self) -> str:
        """ "" for what is no package: a key."""
        return self.text(RpmTag.ARCH)

    @property
    def evr(self) -> str:
        """The version as in a lock: `EPOCH:VERSION-RELEASE`, without an epoch of 0."""
        epoch = self.number(RpmTag.EPOCH)
        version = f"{self.text(RpmTag.VERSION)}-{self.text(RpmTag.RELEASE)}"
        return f"{epoch}:{version}" if epoch else version

    @property
    def size(self) -> int:
        """The installed size in bytes."""
        return self.number(RpmTag.LONGSIZE) or self.number(RpmTag.SIZE)

    @property
    def provides(self) -> list[str]:
        """The names of its capabilities."""
        return self.texts(RpmTag.PROVIDENAME)

    @property
    def scripts(self) -> list[str]:
        """Those that run when it is installed."""
        return [script for tag in SCRIPTS for script in self.texts(tag)]

    @property
    def compressor(self) -> str:
        """How the payload is compressed; "" for gzip, or not at all."""
        return self.text(RpmTag.PAYLOADCOMPRESSOR)

    def paths(self) -> Iterator[str]:
        """The absolute paths of its files, in the order of the other values of files."""
        folders = self.texts(RpmTag.DIRNAMES)
        indexes, names = self.numbers(RpmTag.DIRINDEXES), self.texts(RpmTag.BASENAMES)
        total = 0
        for index, name in zip(indexes, names, strict=True):
            if index >= len(folders):
                raise ValueError(f"{name} is in the folder {index} of {len(folders)}")
            path = folders[index] + name
            total += len(path)
            if total > MOST_PATHS:
                raise ValueError(f"its paths have more than {MOST_PATHS} characters")
            yield path

    def entries(self) -> Iterator[RpmEntry]:
        """Its files, folders and links, in the order of their numbers in a stripped payload."""
        paths = list(self.paths())
        tags = (RpmTag.FILEMODES, RpmTag.LONGFILESIZES, RpmTag.FILEFLAGS, RpmTag.FILESTATES)
        numbers = [self.numbers(tag) for tag in tags]
        numbers[1] = numbers[1] or self.numbers(RpmTag.FILESIZES)
        columns = [found or (0,) * len(paths) for found in numbers]
        digests = self.texts(RpmTag.FILEDIGESTS) or [""] * len(paths)
        rows = zip(paths, *columns, digests, strict=True)
        yield from (RpmEntry(*row) for row in rows)

    @property
    def digest_kind(self) -> ChecksumKind | None:
        """The algorithm of its files' digests; None for one that is not recorded."""
        return DIGESTS.get(self.number(RpmTag.FILEDIGESTALGO) or 1)


def checksum_of(entry: RpmEntry, kind: ChecksumKind | None) -> Checksum | None:
    """The checksum that a package recorded for a file; None for what is no file."""
    if kind is None or not entry.is_file or len(entry.digest) != DIGEST_SIZES[kind]:
        return None
    digest = entry.digest.lower()
    return Checksum(kind, digest) if HEX.fullmatch(digest) else None


def parse_header(blob: bytes) -> RpmHeader:
    """A header in rpm's database.  Raises ValueError."""
    if len(blob) < 8:
        raise ValueError("it has less than 8 bytes")
    entries, size = struct.unpack_from(">II", blob)
    check_limits(entries, size)
    start = 8 + 16 * entries
    if len(blob) != start + size:
        raise ValueError(f"it has {len(blob)} bytes, and says {start + size}")
    return make_header(blob[8:start], blob[start:])


def check_limits(entries: int, size: int) -> None:
    """Raise ValueError for a header that would fill the memory."""
    if entries > MOST_ENTRIES:
        raise ValueError(f"its header has {entries} entries, of at most {MOST_ENTRIES}")
    if size > MOST_STORE:
        raise ValueError(f"its header has {size} bytes, of at most {MOST_STORE}")


def make_header(index: bytes, store: bytes) -> RpmHeader:
    """A header of these parts; an entry that rpm added replaces one that the package came with.

    Raises ValueError for a value outside of the store.
    """
    found = {}
    for tag, kind, offset, count in struct.iter_unpack(">IIII", index):
        if kind not in WIDTHS:
            raise ValueError(f"tag {tag} is of the unknown type {kind}")
        if count > MOST_VALUES and kind not in (BINARY, STRING):
            raise ValueError(f"tag {tag} has {count} values, of at most {MOST_VALUES}")
        if offset + count * WIDTHS[kind] > len(store):
            raise ValueError(f"tag {tag} is outside of the header")
        found[tag] = IndexEntry(kind, offset, count)
    return RpmHeader(found, store)


@dataclass(frozen=True)
class RpmHeaders:
    """What a package file begins with."""

    signature: RpmHeader
    header: RpmHeader

    @property
    def signed_size(self) -> int:
        """The bytes of header and payload as the package says; 0 if it does not."""
        found = self.signature.number(SignatureTag.LONGSIGSIZE)
        return found or self.signature.number(SignatureTag.SIGSIZE)


def read_headers(stream: BinaryIO) -> RpmHeaders:
    """What is before the payload, where the stream then is.  Raises ValueError."""
    lead = stream.read(LEAD)
    if not lead.startswith(LEAD_MAGIC) or len(lead) < LEAD:
        raise ValueError("it does not start like one")
    signature = read_header(stream)
    stream.read(-stream.tell() % ALIGNED)
    return RpmHeaders(signature, read_header(stream))


def read_header(stream: BinaryIO) -> RpmHeader:
    """The header that comes next.  Raises ValueError."""
    begin = stream.read(16)
    if not begin.startswith(MAGIC) or len(begin) < 16:
        raise ValueError("it has no header where one should be")
    entries, size = struct.unpack_from(">II", begin, 8)
    check_limits(entries, size)
    index, store = stream.read(16 * entries), stream.read(size)
    if len(index) < 16 * entries or len(store) < size:
        raise ValueError("it ends within its header")
    return make_header(index, store)


def read_package_header(path: Path) -> RpmHeader:
    """The header of a package file.  Raises WorkError if it is none."""
    try:
        with plain_file(path) as stream:
            return read_headers(stream).header
    except (OSError, ValueError) as error:
        raise WorkError(f"not a readable package: {error}", where=os.fspath(path)) from error
