# SPDX-License-Identifier: Apache-2.0
"""Files of an image in memory, as far as that is large enough: their author is not trusted.

A file of zeros takes no place on the disk, and unpacks from almost nothing.
"""

from __future__ import annotations

import lzma
import mmap
import os
import stat
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Protocol

import zstandard

from imagebuilder.errors import WorkError

# The largest that are read and unpacked: kernels and firmware have 100 MiB, lists of packages less.
MOST_READ, MOST_UNPACKED = 256 << 20, 256 << 20
# The largest that are searched, which takes time and no memory: models have tens of gigabytes.
MOST_MAPPED = 256 << 30
# A block of three bytes unpacks to 128 KiB (RFC 8878, "Blocks").
PIECE = 4096
MOST_STREAMS = 1 << 16  # bgzip(1) makes one of 64 KiB
MOST_DICTIONARY = 256 << 20  # xz(1): -9 takes 64 MiB
GZIP = 31  # zlib's wbits


class UnpackError(ValueError):
    """What is compressed in a file is larger than MOST_UNPACKED, or ends early."""


def check_size(path: Path, where: str, most: int) -> bool:
    """Whether `path`, which is no link, is a file.  Raises WorkError for a larger one."""
    info = path.lstat()
    if stat.S_ISREG(info.st_mode) and info.st_size > most:
        raise WorkError(
            f"is too large: it has {info.st_size} bytes, and at most {most >> 20} MiB are read",
            where=where,
            hint="find out what made it (imagebuilder why), and remove it from the image",
        )
    return stat.S_ISREG(info.st_mode)


def read_limited(path: Path, where: str) -> bytes | None:
    """The content of a file, which is no link; None for what is no file, such as a pipe.

    `where` names it in errors.  Raises WorkError for one that is too large.
    """
    return path.read_bytes() if check_size(path, where, MOST_READ) else None


def map_file(path: str | os.PathLike[str]) -> mmap.mmap | bytes:
    """The content of a file, mapped: what refers to it keeps it; none of a pipe or a device, which
    may never answer.  Raises OSError.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a text or a path
        return b""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            return b""
        return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)


def map_limited(path: Path, where: str) -> mmap.mmap | bytes | None:
    """As read_limited(), of a file that may be larger than the memory."""
    return map_file(path) if check_size(path, where, MOST_MAPPED) else None


def take(unpacked: bytearray, more: bytes) -> None:
    unpacked += more
    if len(unpacked) > MOST_UNPACKED:
        raise UnpackError(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB")


class Stream(Protocol):
    """A decompressor of the libraries."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def unpack(content: bytes, start: Callable[[], Stream]) -> bytes:
    """What all streams of a file unpack to, one behind the other, with zeros between them.

    Raises UnpackError, and what `start` and the decompressor raise.
    """
    pieces, unpacked = BytesIO(content), bytearray()
    stream, piece, count = start(), b"", 1
    while piece := piece or pieces.read(PIECE):
        if stream.eof:
            piece = piece.lstrip(b"\0")
            if not piece:
                continue
            stream, count = start(), count + 1
            if count > MOST_STREAMS:
                raise UnpackError(f"it consists of more than {MOST_STREAMS} streams")
        take(unpacked, stream.decompress(piece))
        piece = stream.unused_data
    if not stream.eof:
        raise UnpackError("the file is truncated")
    return bytes(unpacked)


def unpack_xz(content: bytes) -> bytes:
    """Raises LZMAError, UnpackError."""
    return unpack(content, lambda: lzma.LZMADecompressor(memlimit=MOST_DICTIONARY))


def unpack_gz(content: bytes) -> bytes:
    """Raises zlib.error, UnpackError."""
    return unpack(content, lambda: zlib.decompressobj(GZIP))


def unpack_zst(content: bytes) -> bytes:
    """Raises ZstdError, UnpackError."""
    return unpack(content, lambda: zstandard.ZstdDecompressor().decompressobj())
