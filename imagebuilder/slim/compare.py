# SPDX-License-Identifier: Apache-2.0
"""Check that a slimmed library differs from the old one only in the removed code objects.

Reads the new file back before it replaces the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from imagebuilder.elf import LOAD, NOBITS, Elf, Section
from imagebuilder.offload import FATBIN
from imagebuilder.slim.bundle import serves
from imagebuilder.slim.fatbin import Fatbin


def differences(
    old: Elf, new: Elf, fatbins: tuple[Fatbin, Fatbin], wanted: Sequence[str]
) -> Iterator[str]:
    """Every unexpected difference, one sentence each."""
    was, now = fatbins
    if [code_of(old, was, n, wanted) for n in range(len(was.pointers))] != [
        code_of(new, now, n, ()) for n in range(len(now.pointers))
    ]:
        yield "the remaining code objects changed"
    for one, two in zip(old.sections, new.sections, strict=True):
        same = (one.name, one.type, one.flags, one.addr) == (
            two.name,
            two.type,
            two.flags,
            two.addr,
        )
        if not same or (one.name != FATBIN and one.size != two.size):
            yield f"the header of section {one.name} changed"
        elif one.name != FATBIN and masked(old, one, was) != masked(new, two, now):
            yield f"the content of section {one.name} changed"
    yield from unloaded(new)


def masked(elf: Elf, section: Section, fatbin: Fatbin) -> memoryview | bytearray:
    """The content of a section with the pointers to bundles as zeros."""
    inside = [
        place - section.offset
        for pointer in fatbin.pointers
        for place in pointer.places
        if section.offset <= place < section.end
    ]
    if not inside:
        return elf.content(section)
    content = bytearray(elf.content(section))
    for place in inside:
        content[place : place + 8] = bytes(8)
    return content


def code_of(elf: Elf, fatbin: Fatbin, number: int, wanted: Sequence[str]) -> list[object]:
    """The id and content of the code objects for `wanted` that a wrapper leads to."""
    start = fatbin.pointers[number].start
    bundle = next(b for b in fatbin.bundles if b.start == start)
    code = elf.content(fatbin.section)[start : start + bundle.size]
    return [
        (entry.id, code[entry.offset : entry.offset + entry.size])
        for entry in bundle.entries
        if not wanted or not entry.target or serves(entry.target, wanted)
    ]


def unloaded(elf: Elf) -> Iterator[str]:
    """Faults unless the segments are in order, disjoint, and load every section to its address."""
    loads = [s for s in elf.segments if s.type == LOAD]
    for one, two in pairwise(loads):
        if one.vaddr + one.memsz > two.vaddr // two.align * two.align:
            yield "two segments share a page"
    for load in loads:
        if load.offset % load.align != load.vaddr % load.align:
            yield "a segment is not at its place in a page"
    for section in elf.sections:
        if section.flags & 2 == 0 or section.type == NOBITS:  # SHF_ALLOC
            continue
        if not any(
            load.offset <= section.offset
            and section.end <= load.offset + load.filesz
            and section.addr - load.vaddr == section.offset - load.offset
            for load in loads
        ):
            yield f"section {section.name} is not loaded to its address"
