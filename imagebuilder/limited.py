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
from io import BytesIO
from pathlib import Path

import zstandard

from imagebuilder.errors import WorkError

# The largest that are read and unpacked: kernels and firmware have 100 MiB, lists of packages less.
MOST_READ, MOST_UNPACKED = 256 << 20, 256 << 20
# The largest that are searched, which takes time and no memory: models have tens of gigabytes.
MOST_MAPPED = 256 << 30
# A block of three bytes unpacks to 128 KiB (RFC 8878, "Blocks").
PIECE, TAKEN = 4096, 1 << 20
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


def map_limited(path: Path, where: str) -> mmap.mmap | bytes | None:
    """The same of a file that may be larger than the memory."""
    if not check_size(path, where, MOST_MAPPED):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            return b""
        return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)


def take(unpacked: bytearray, more: bytes) -> None:
    unpacked += more
    if len(unpacked) > MOST_UNPACKED:
        raise UnpackError(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB")


def unpack_xz(content: bytes) -> bytes:
    """Raises LZMAError, UnpackError."""
    unpacked = bytearray()
    while content.strip(b"\0"):
        stream = lzma.LZMADecompressor(memlimit=MOST_DICTIONARY)
        take(unpacked, stream.decompress(content, TAKEN))
        while not stream.eof:
            if stream.needs_input:
                raise UnpackError("the file is truncated")
            take(unpacked, stream.decompress(b"", TAKEN))
        content = stream.unused_data
    return bytes(unpacked)


def unpack_gz(content: bytes) -> bytes:
    """Raises zlib.error, UnpackError."""
    stream, unpacked = zlib.decompressobj(GZIP), bytearray()
    while not stream.eof:
        more = stream.decompress(content, TAKEN)
        take(unpacked, more)
        content = stream.unconsumed_tail
        if not more and not content and not stream.eof:
            raise UnpackError("the file is truncated")
    return bytes(unpacked)


def unpack_zst(content: bytes) -> bytes:
    """Raises ZstdError, UnpackError."""
    stream, unpacked = zstandard.ZstdDecompressor().decompressobj(), bytearray()
    pieces = BytesIO(content)
    while not stream.eof:
        piece = pieces.read(PIECE)
        if not piece:
            raise UnpackError("the file is truncated")
        take(unpacked, stream.decompress(piece))
    return bytes(unpacked)
