# SPDX-License-Identifier: Apache-2.0
"""Keep the code objects of a bundle that some targets need (imagebuilder/offload.py)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imagebuilder.offload import (
    BUNDLE,
    MOST_ENTRIES,
    MOST_ID,
    BundleEntry,
    count_entries,
    read_entries,
)

PAGE = 4096


def serves(target: str, wanted: Sequence[str]) -> bool:
    """Whether code for `target` may run on one of `wanted`.

    Generic targets are compared by generation only.  That keeps more than offload.runs_on() says
    (`gfx9-4-generic` for every gfx9), and also what a newer compiler adds to its table.
    """
    if target in wanted:
        return True
    if not target.endswith("-generic"):
        return False
    generation = target.removeprefix("gfx").partition("-")[0]
    return any(name.startswith("gfx") and name[3:-2] == generation for name in wanted)


def read_bundle(data: memoryview) -> tuple[BundleEntry, ...]:
    """The entries of the bundle that `data` begins with.  Raises ValueError."""

    def at(place: int, size: int) -> bytes:
        found = bytes(data[place : place + size])
        return found if len(found) == size else b""

    if data[: len(BUNDLE)] != BUNDLE:
        raise ValueError("not a bundle of code objects")
    count, found = count_entries(at, 0), tuple(read_entries(at, 0))
    if count > MOST_ENTRIES:
        raise ValueError(f"a bundle of {count} code objects")
    if len(found) < count or not all(entry.id for entry in found):
        raise ValueError("a bundle that ends early")
    if any(len(e.id) == MOST_ID or e.offset + e.size > len(data) for e in found):
        raise ValueError("a code object beyond the end of its bundle")
    if not all(entry.id.isascii() for entry in found):
        raise ValueError("a code object whose id is not ASCII")
    return found


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
    length = len(BUNDLE) + 8 + sum(24 + len(e.id) for e in stay)
    end = align(length, PAGE)
    moved = []
    for entry in stay:
        offset = align(end, PAGE)
        moved.append(MovedEntry(entry, offset))
        end = offset + entry.size
    rows = (
        struct.pack("<QQQ", m.offset, m.entry.size, len(m.entry.id)) + m.entry.id for m in moved
    )
    header = BUNDLE + struct.pack("<Q", len(moved)) + b"".join(rows)
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
