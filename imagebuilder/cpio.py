# SPDX-License-Identifier: Apache-2.0
"""Where archives in cpio's format newc end: the kernel unpacks one after the other.

An entry is a header of 110 bytes, a name and a content, each padded to ALIGNED bytes
(Documentation/driver-api/early-userspace/buffer-format.rst in Linux).
"""

from __future__ import annotations

import os
from typing import BinaryIO

MAGIC = b"070701"
HEADER = 110
TRAILER = b"TRAILER!!!"
# The kernel looks for an archive at such an offset only, and its EFI stub puts one file behind the
# other without a gap.
ALIGNED = 4


def measure_archives(stream: BinaryIO) -> int:
    """The bytes of the archives, with what pads them, that a stream begins with; it ends there.

    Raises ValueError if an archive ends early.
    """
    while skip_archive(stream):
        skip_padding(stream)
    return stream.tell()


def skip_archive(stream: BinaryIO) -> bool:
    """Go behind an archive; False, where there is none.  Raises ValueError if it ends early."""
    name = b""
    while header := read_header(stream):
        size, length = int(header[54:62], 16), int(header[94:102], 16)
        name = stream.read(length).rstrip(b"\0")
        stream.seek(-(HEADER + length) % ALIGNED + size + -size % ALIGNED, os.SEEK_CUR)
        if name == TRAILER:
            return True
    if name:
        raise ValueError(f"truncated: an archive ends after {os.fsdecode(name)}")
    return False


def read_header(stream: BinaryIO) -> bytes:
    """The header of the next entry; where there is none, nothing, and nothing is read."""
    header = stream.read(HEADER)
    if header.startswith(MAGIC) and len(header) == HEADER:
        return header
    stream.seek(-len(header), os.SEEK_CUR)
    return b""


def skip_padding(stream: BinaryIO) -> None:
    """Go to the next byte that is not 0."""
    while block := stream.read(512):
        if rest := block.lstrip(b"\0"):
            stream.seek(-len(rest), os.SEEK_CUR)
            return
