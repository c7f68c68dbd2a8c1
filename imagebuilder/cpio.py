# SPDX-License-Identifier: Apache-2.0
"""Archives in cpio's format newc, which the kernel unpacks one after the other.

An entry is a header of 110 bytes, a name and a content, each padded to ALIGNED bytes
(Documentation/driver-api/early-userspace/buffer-format.rst in Linux).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"070701"
HEADER = 110
TRAILER = b"TRAILER!!!"
# The kernel looks for an archive at such an offset only, and its EFI stub puts one file behind the
# other without a gap.
ALIGNED = 4
MOST_NAME = 4096  # bytes; the kernel takes no longer path, and skips such an entry
BLOCK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """An entry of a cpio archive: a file with `content`, a symlink with `link`, or by `kind`."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    owner: int = 0
    group: int = 0
    link: str = ""
    kind: int = stat.S_IFREG

    def render(self, number: int) -> bytes:
        kind = stat.S_IFLNK if self.link else self.kind
        data = self.link.encode() or self.content
        name = os.fsencode(self.path) + b"\0"
        fields = (
            number, kind | self.mode, self.owner, self.group, 1, 0, len(data),
            0, 0, 0, 0, len(name), 0,
        )  # fmt: skip
        header = MAGIC + b"".join(b"%08x" % value for value in fields)
        return padded(header + name) + padded(data)


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNED)


def complete(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` with the folders that they need, each before what is in it."""
    folders = {
        parent: Entry(parent, kind=stat.S_IFDIR, mode=0o755)
        for parent in {above for entry in entries for above in folders_above(entry.path)}
    }
    folders |= {entry.path: entry for entry in entries if entry.kind == stat.S_IFDIR}
    others = [entry for entry in entries if entry.path not in folders]
    return [*(folders[path] for path in sorted(folders)), *others]


def folders_above(path: str) -> Iterator[str]:
    """`a`, `a/b` for `a/b/c`."""
    place = path.find("/")
    while place > 0:
        yield path[:place]
        place = path.find("/", place + 1)


def render_cpio(entries: Sequence[Entry]) -> bytes:
    """An archive that the kernel unpacks after an initrd; folders come before what is in them."""
    ordered = [*complete(entries), Entry(TRAILER.decode(), kind=0)]
    return b"".join(entry.render(number) for number, entry in enumerate(ordered, 1))


def measure_archives(stream: BinaryIO) -> int:
    """The bytes of the archives, with what pads them, that a stream begins with; it ends there.

    Raises ValueError if an archive ends early.
    """
    while skip_archive(stream):
        skip_padding(stream)
    return stream.tell()


def skip_archive(stream: BinaryIO) -> bool:
    """Go behind an archive; False, where there is none.

    Raises ValueError if it ends early, or has a name that no path has.
    """
    name = b""
    while header := read_header(stream):
        size, length = number(header[54:62]), number(header[94:102])
        if length > MOST_NAME:
            raise ValueError(f"corrupt: an archive has a name of {length} bytes")
        name = stream.read(length).rstrip(b"\0")
        stream.seek(-(HEADER + length) % ALIGNED + size + -size % ALIGNED, os.SEEK_CUR)
        if name == TRAILER:
            return True
    if name:
        raise ValueError(f"truncated: an archive ends after {os.fsdecode(name)}")
    return False


def number(field: bytes) -> int:
    """Eight digits.  Raises ValueError: int() would take a sign, and lead back for ever."""
    return int.from_bytes(bytes.fromhex(field.decode("ascii")), "big")


def read_header(stream: BinaryIO) -> bytes:
    """The header of the next entry; where there is none, nothing, and nothing is read."""
    header = stream.read(HEADER)
    if header.startswith(MAGIC) and len(header) == HEADER:
        return header
    stream.seek(-len(header), os.SEEK_CUR)
    return b""


def skip_padding(stream: BinaryIO) -> None:
    """Go to the next byte that is not 0."""
    while block := stream.read(BLOCK):
        if rest := block.lstrip(b"\0"):
            stream.seek(-len(rest), os.SEEK_CUR)
            return
