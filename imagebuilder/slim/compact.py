# SPDX-License-Identifier: Apache-2.0
"""Write a library anew with fewer code objects: a file that is smaller, in memory as it was.

    file    | all before | bundles of what stays | program headers | all behind |
    memory  | all before | bundles of what stays | program headers |  (nothing) | all behind |

No address changes but those of the bundles, which move together at the beginning of their section
and are pointed at by relocations whose addends are corrected.  The segment that held them becomes
two, the first of which ends early; for that the table of program headers needs a row more, for
which there is room where code objects were.  What lies behind moves in the file by a multiple of
the page size (elf(5): p_offset and p_vaddr are congruent modulo p_align).
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
    """A bundle that stays in part: as it was, as it is, and where that begins in the section."""

    bundle: Bundle
    slimmed: Slimmed
    start: int


@dataclass(frozen=True)
class Layout:
    """Where everything is in the new file.

    The section's content ends at `end`, the program headers begin at `table`; `behind` is where in
    the old file began what now begins `saved` bytes earlier.
    """

    moves: tuple[Move, ...]
    segments: tuple[Segment, ...]
    size: int
    table: int
    behind: int
    saved: int


def plan_layout(elf: Elf, fatbin: Fatbin, wanted: Sequence[str]) -> Layout | None:
    """How the file looks with the code for `wanted` only; None when nothing is saved.

    Raises LeaveAloneError when the file is built in a way that leaves no room.
    """
    section = fatbin.section
    moves = tuple(plan_moves(fatbin, wanted))
    size = moves[-1].start + moves[-1].slimmed.size
    table = align(section.offset + size, 8)
    number, held = holder(elf, section)
    end = table + (len(elf.segments) + 1) * SEGMENT_SIZE
    behind = section.end
    page = max(PAGE, *(s.align for s in elf.segments if s.type == LOAD))
    # The first offset behind the table that is congruent to the old one.
    saved = (behind - end) // page * page
    in_memory = align(held.vaddr + end - held.offset, page)
    if saved <= 0 or in_memory > (section.addr + section.size) // page * page:
        return None
    first = held._replace(filesz=end - held.offset, memsz=end - held.offset)
    cut = behind - held.offset
    second = held._replace(
        offset=behind,
        vaddr=held.vaddr + cut,
        paddr=held.paddr + cut,
        filesz=held.filesz - cut,
        memsz=held.memsz - cut,
    )
    both = (first, second) if second.filesz else (first,)
    rows = [*elf.segments[:number], *both, *elf.segments[number + 1 :]]
    place = held.vaddr + table - held.offset
    moved = tuple(move_segment(row, behind, saved, table, place, len(rows)) for row in rows)
    return Layout(moves, moved, size, table, behind, saved)


def plan_moves(fatbin: Fatbin, wanted: Sequence[str]) -> Iterator[Move]:
    """The bundles one behind the other, each at a multiple of the section's alignment."""
    start = 0
    for bundle in fatbin.bundles:
        slimmed = slim_bundle(bundle.entries, wanted)
        yield Move(bundle, slimmed, start)
        start = align(start + slimmed.size, PAGE)


def holder(elf: Elf, section: Section) -> tuple[int, Segment]:
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
    raise LeaveAloneError("its segments are not as linkers make them")


def move_segment(
    row: Segment, behind: int, saved: int, table: int, place: int, count: int
) -> Segment:
    """A program header as it is in the new file; the one of the table itself names its new place.

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
        data = code[bundle.start : bundle.start + bundle.room]
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
    # 1. The header, and the old table, which is no one's now.
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
