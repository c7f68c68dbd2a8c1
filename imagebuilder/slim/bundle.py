# SPDX-License-Identifier: Apache-2.0
"""Bundles of code objects by clang's offload bundler, and how to slim one.

    __CLANG_OFFLOAD_BUNDLE__   24 bytes
    number of entries          u64, little-endian as all below
    per entry                  u64 offset in the bundle, u64 size, u64 length of its id, the id
    code objects               each at a multiple of the page size

An id is `host-x86_64-unknown-linux-gnu-` (always empty) or `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`
(clang's documentation, ClangOffloadBundler).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
PAGE = 4096
MOST_ENTRIES = 1000  # a bundle has fewer
MOST_ID = 1000

# A target in an id or a file's name: a card's, or a generic one (LLVM's AMDGPU guide).
TARGET = re.compile(r"gfx[0-9]+(?:-[0-9]+)*-generic|gfx[0-9]+[0-9a-f]{2}(?![0-9a-z])")


@dataclass(frozen=True)
class BundleEntry:
    """A code object and its position in the bundle."""

    offset: int
    size: int
    id: str

    @property
    def target(self) -> str:
        """`gfx90a`; "" for the host."""
        found = TARGET.search(self.id.partition("--")[2].partition(":")[0])
        return found[0] if found else ""


def serves(target: str, wanted: Sequence[str]) -> bool:
    """Whether code for `target` may run on one of `wanted`.

    Generic targets are compared by generation only, which keeps too much rather than too little.
    """
    if target in wanted:
        return True
    if not target.endswith("-generic"):
        return False
    generation = target.removeprefix("gfx").partition("-")[0]
    return any(name.startswith("gfx") and name[3:-2] == generation for name in wanted)


def read_bundle(data: memoryview) -> tuple[BundleEntry, ...]:
    """The entries of the bundle that `data` begins with.  Raises ValueError."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("not a bundle of code objects")
    try:
        (count,) = struct.unpack_from("<Q", data, len(MAGIC))
        if count > MOST_ENTRIES:
            raise ValueError(f"a bundle of {count} code objects")
        place, found = len(MAGIC) + 8, []
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, place)
            if length > MOST_ID or offset + size > len(data):
                raise ValueError("a code object beyond the end of its bundle")
            place += 24
            found.append(
                BundleEntry(offset, size, bytes(data[place : place + length]).decode("ascii"))
            )
            place += length
    except struct.error as error:
        raise ValueError("a bundle that ends early") from error
    return tuple(found)


@dataclass(frozen=True)
class MovedEntry:
    """An entry that stays, and its new offset."""

    entry: BundleEntry
    offset: int


@dataclass(frozen=True)
class Slimmed:
    """A slimmed bundle: its header, its entries in their old order, and its length."""

    header: bytes
    entries: tuple[MovedEntry, ...]
    size: int


def slim_bundle(entries: Sequence[BundleEntry], wanted: Sequence[str]) -> Slimmed:
    """The bundle with only the code for `wanted` and entries without device code."""
    stay = [e for e in entries if not e.target or serves(e.target, wanted)]
    length = len(MAGIC) + 8 + sum(24 + len(e.id) for e in stay)
    end = align(length, PAGE)
    moved = []
    for entry in stay:
        offset = align(end, PAGE)
        moved.append(MovedEntry(entry, offset))
        end = offset + entry.size
    rows = (
        struct.pack("<QQQ", m.offset, m.entry.size, len(m.entry.id)) + m.entry.id.encode()
        for m in moved
    )
    header = MAGIC + struct.pack("<Q", len(moved)) + b"".join(rows)
    return Slimmed(header, tuple(moved), end)


def pieces(old: memoryview, slimmed: Slimmed) -> Iterator[tuple[int, bytes | memoryview]]:
    """The pieces of a slimmed bundle: offset and content; the gaps are zeros."""
    yield 0, slimmed.header
    for moved in slimmed.entries:
        entry = moved.entry
        if entry.size:
            yield moved.offset, old[entry.offset : entry.offset + entry.size]


def align(value: int, unit: int) -> int:
    return -(-value // unit) * unit
