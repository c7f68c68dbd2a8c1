# SPDX-License-Identifier: Apache-2.0
"""Rewrite a library with fewer code objects: the file gets smaller, the memory layout stays.

    file    | all before | remaining bundles | program headers | all behind |
    memory  | all before | remaining bundles | program headers |  (nothing) | all behind |

Only the addresses of bundles change: they move together at the beginning of their section, and the
addends of the relocations that point to them are corrected.  Their segment becomes two, the first
of which ends early; so the table of program headers needs another row, and moves to where code
objects were.  What lies behind moves in the file by a multiple of the page size (elf(5): p_offset
and p_vaddr are congruent modulo p_align).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from imagebuilder.elf import EHDR, LOAD, PHDR, Elf, Section, Segment
from imagebuilder.slim.bundle import PAGE, Slimmed, align, pieces, slim_bundle
from imagebuilder.slim.fatbin import Bundle, Fatbin, LeaveAloneError

SEGMENT_SIZE, SECTION_SIZE = 56, 64


@dataclass(frozen=True)
class Move:
    """A bundle before and after slimming, and its new offset in the section."""

    bundle: Bundle
    slimmed: Slimmed
    start: int


@dataclass(frozen=True)
class Layout:
    """Where everything is in the new file.

    The section has `size` bytes, the program headers begin at `table`; `behind` is the offset in
    the old file of the part that now begins `saved` bytes earlier.
    """

    moves: tuple[Move, ...]
    segments: tuple[Segment, ...]
    size: int
    table: int
    behind: int
    saved: int


def plan_layout(elf: Elf, fatbin: Fatbin, wanted: Sequence[str]) -> Layout | None:
    """The layout with only the code for `wanted`; None if nothing is saved.

    Raises LeaveAloneError if the file's segments are unusual.
    """
    section = fatbin.section
    moves = tuple(plan_moves(fatbin, wanted))
    size = moves[-1].start + moves[-1].slimmed.size
    table = align(section.offset + size, 8)
    number, segment = segment_of(elf, section)
    end = table + (len(elf.segments) + 1) * SEGMENT_SIZE
    behind = section.end
    page = max(PAGE, *(s.align for s in elf.segments if s.type == LOAD))
    # The first offset behind the table that is congruent to the old one.
    saved = (behind - end) // page * page
    in_memory = align(segment.vaddr + end - segment.offset, page)
    if saved <= 0 or in_memory > (section.addr + section.size) // page * page:
        return None
    first = segment._replace(filesz=end - segment.offset, memsz=end - segment.offset)
    cut = behind - segment.offset
    second = segment._replace(
        offset=behind,
        vaddr=segment.vaddr + cut,
        paddr=segment.paddr + cut,
        filesz=segment.filesz - cut,
        memsz=segment.memsz - cut,
    )
    both = (first, second) if second.filesz else (first,)
    rows = [*elf.segments[:number], *both, *elf.segments[number + 1 :]]
    place = segment.vaddr + table - segment.offset
    moved = tuple(move_segment(row, behind, saved, table, place, len(rows)) for row in rows)
    return Layout(moves, moved, size, table, behind, saved)


def plan_moves(fatbin: Fatbin, wanted: Sequence[str]) -> Iterator[Move]:
    """The bundles one behind the other, each at a multiple of the section's alignment."""
    start = 0
    for bundle in fatbin.bundles:
        slimmed = slim_bundle(bundle.entries, wanted)
        yield Move(bundle, slimmed, start)
        start = align(start + slimmed.size, PAGE)


def segment_of(elf: Elf, section: Section) -> tuple[int, Segment]:
    """The segment that loads the section, and nothing that is not in the file (.bss)."""
    for number, segment in enumerate(elf.segments):
        if segment.type != LOAD or not segment.offset <= section.offset < segment.offset + max(
            segment.filesz, 1
        ):
            continue
        fits = (
            section.end <= segment.offset + segment.filesz
            and segment.filesz == segment.memsz
            and section.addr - segment.vaddr == section.offset - segment.offset
        )
        if not fits:
            break
        return number, segment
    raise LeaveAloneError("its segments are unusual for a linker")


def move_segment(
    row: Segment, behind: int, saved: int, table: int, place: int, count: int
) -> Segment:
    """A program header of the new file; that of the table itself has its new place.

    `table` and `place` are its offset and address, `count` its rows.
    """
    if row.type == PHDR:
        size = count * SEGMENT_SIZE
        return row._replace(offset=table, vaddr=place, paddr=place, filesz=size, memsz=size)
    return row._replace(offset=row.offset - saved) if row.offset >= behind else row


def write_compact(elf: Elf, fatbin: Fatbin, layout: Layout, out: IO[bytes]) -> None:
    """Write the new file to `out`, which is empty."""
    old, section = memoryview(elf.data), fatbin.section
    out.write(old[: section.offset])
    code = elf.content(section)
    for move in layout.moves:
        bundle = move.bundle
        data = code[bundle.start : bundle.start + bundle.size]
        for offset, content in pieces(data, move.slimmed):
            pad_to(out, section.offset + move.start + offset)
            out.write(content)
    pad_to(out, layout.table)
    out.write(b"".join(row.pack() for row in layout.segments))
    pad_to(out, layout.behind - layout.saved)
    out.write(old[layout.behind :])
    for place, content in patches(elf, fatbin, layout):
        out.seek(place)
        out.write(content)


def pad_to(out: IO[bytes], place: int) -> None:
    out.write(bytes(place - out.tell()))


def patches(elf: Elf, fatbin: Fatbin, layout: Layout) -> Iterator[tuple[int, bytes]]:
    """What differs in the parts that are copied: new offsets and content."""

    def moved(offset: int) -> int:
        return offset - layout.saved if offset >= layout.behind else offset

    header, section = elf.header, fatbin.section
    # 1. The header, and the old table, which is no longer used.
    yield header.phoff, bytes(header.phnum * SEGMENT_SIZE)
    words = list(struct.unpack_from(EHDR, elf.data))
    words[5], words[6], words[10] = layout.table, moved(header.shoff), len(layout.segments)
    yield 0, struct.pack(EHDR, *words)
    # 2. The sections' offsets, and the size of the one that shrank.
    for each in elf.sections:
        row = moved(header.shoff) + each.number * SECTION_SIZE
        yield row + 24, struct.pack("<Q", moved(each.offset))
        if each is section:
            yield row + 32, struct.pack("<Q", layout.size)
    # 3. The pointers to the bundles.
    starts = {move.bundle.start: move.start for move in layout.moves}
    for pointer in fatbin.pointers:
        address = section.addr + starts[pointer.start]
        for place in pointer.places:
            yield moved(place), struct.pack("<Q", address)
