# SPDX-License-Identifier: Apache-2.0
"""Read what is compressed in a package, as it is unpacked: nothing of it goes to a disk.

A few bytes may be unpacked to any number, which take time and, if they are kept, memory.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO, cast

import zstandard

# Far more than a file has that is read whole.
MOST_READ = 64 << 20
# What may be unpacked of a package.  Far more than packages have.
MOST_UNPACKED = 64 << 30
MOST_DICTIONARY = 256 << 20  # xz(1): -9 takes 64 MiB
PIECE = 1 << 16
BROKEN = (OSError, ValueError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


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


class UnpackedXz(io.RawIOBase):
    """As lzma.LZMAFile, which takes any amount of memory: a package says how much it needs."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._stream = packed, self._start()

    @staticmethod
    def _start() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(memlimit=MOST_DICTIONARY)

    def readable(self) -> bool:
        return True

    def _next_stream(self) -> bytes:
        """The first bytes behind a stream and its padding."""
        rest = self._stream.unused_data.lstrip(b"\0")
        while not rest and (piece := self._packed.read(PIECE)):
            rest = piece.lstrip(b"\0")
        return rest

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = b""
        while not found:
            piece = b""
            if self._stream.eof:
                piece = self._next_stream()
                if not piece:
                    return 0
                self._stream = self._start()
            elif self._stream.needs_input and not (piece := self._packed.read(PIECE)):
                raise EOFError("it is truncated")
            found = self._stream.decompress(piece, len(buffer))
        buffer[: len(found)] = found
        return len(found)


def open_xz(packed: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(UnpackedXz(packed), PIECE))


def open_zstd(packed: BinaryIO) -> BinaryIO:
    # It takes a window of at most 128 MiB (ZSTD_WINDOWLOG_LIMIT_DEFAULT).
    whole = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    return cast(BinaryIO, whole)


OPENERS: dict[str, Callable[[BinaryIO], BinaryIO]] = {
    "": lambda packed: packed,
    "gzip": lambda packed: cast(BinaryIO, gzip.GzipFile(fileobj=packed)),
    "xz": open_xz,
    "lzma": open_xz,
    "bzip2": lambda packed: cast(BinaryIO, bz2.BZ2File(packed)),
    "zstd": open_zstd,
}


def unpack(kind: str, packed: BinaryIO) -> Unpacked:
    """What the program `kind` compressed, as it is read; "" for what is not compressed.

    Reading raises what is in BROKEN.  Raises ValueError.
    """
    if kind not in OPENERS:
        raise ValueError(f"it is compressed in an unknown way: {kind}")
    return Unpacked(OPENERS[kind](packed))
