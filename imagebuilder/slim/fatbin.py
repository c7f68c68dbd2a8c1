# SPDX-License-Identifier: Apache-2.0
"""HIP fat binaries: the bundles of code objects in a library, and the pointers to them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.elf import DYN, DYNSYM, RELA, RELR, Elf, Section
from imagebuilder.offload import (
    COMPRESSED,
    FATBIN,
    POINTER,
    RELATIVE,
    RELOCATION,
    WRAPPER,
    WRAPPER_MAGIC,
    WRAPPERS,
    BundleEntry,
)
from imagebuilder.slim.bundle import read_bundle

SYMBOL = "<IBBHQQ"


class LeaveAloneError(Exception):
    """The file cannot be slimmed safely; the text says why."""


@dataclass(frozen=True)
class Bundle:
    start: int
    size: int
    entries: tuple[BundleEntry, ...]


@dataclass(frozen=True)
class Pointer:
    """A wrapper's pointer to the bundle at `start` of the section.

    `places` are the file offsets of the eight bytes that hold it.
    """

    start: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class Fatbin:
    """The parsed `.hip_fatbin` of a library."""

    section: Section
    bundles: tuple[Bundle, ...]
    pointers: tuple[Pointer, ...]


def read_fatbin(elf: Elf) -> Fatbin | None:
    """The fat binary of a library; None if it has none.

    Raises LeaveAloneError if something in it is not understood.
    """
    section, wrappers = elf.find(FATBIN), elf.find(WRAPPERS)
    if section is None or wrappers is None or not section.size:
        return None
    relative = RELATIVE.get(elf.header.machine)
    if elf.header.type != DYN or relative is None or any(s.type == RELR for s in elf.sections):
        raise LeaveAloneError("it does not refer to its code by plain relative relocations")
    if any(s.number > section.number and s.name == FATBIN for s in elf.sections):
        raise LeaveAloneError(f"it has more than one {FATBIN}")
    pointers = tuple(find_pointers(elf, section, wrappers, relative))
    refuse_symbols(elf, section)
    return Fatbin(section, tuple(find_bundles(elf, section, pointers)), pointers)


def find_pointers(
    elf: Elf, section: Section, wrappers: Section, relative: int
) -> Iterator[Pointer]:
    """The pointer of each wrapper.  Raises LeaveAloneError if anything else points there."""
    found = {r.address: r for r in relocations(elf, relative) if r.into(section)}
    data = elf.content(wrappers)
    if len(data) % WRAPPER.size:
        raise LeaveAloneError(f"{WRAPPERS} is not a list of wrappers")
    for number, (magic, version, _, _) in enumerate(WRAPPER.iter_unpack(data)):
        offset = number * WRAPPER.size + POINTER
        relocation = found.pop(wrappers.addr + offset, None)
        if (magic, version) != (WRAPPER_MAGIC, 1) or relocation is None:
            raise LeaveAloneError(f"wrapper {number} in {WRAPPERS} does not point to a bundle")
        # Some linkers also write the addend to the place itself, where ld.so does not read it.
        (written,) = struct.unpack_from("<Q", data, offset)
        second = (wrappers.offset + offset,) if written == relocation.addend else ()
        yield Pointer(relocation.addend - section.addr, (relocation.place, *second))
    if found:
        raise LeaveAloneError("something other than a wrapper points to its code")


@dataclass(frozen=True)
class Relocation:
    """A relative relocation: its target address, its addend, and the addend's file offset."""

    address: int
    addend: int
    place: int

    def into(self, section: Section) -> bool:
        return section.addr <= self.addend < section.addr + section.size


def relocations(elf: Elf, relative: int) -> Iterator[Relocation]:
    size = RELOCATION.size
    for section in elf.sections:
        if section.type != RELA:
            continue
        data = elf.content(section)
        rows = RELOCATION.iter_unpack(data[: len(data) // size * size])
        for number, (address, info, addend) in enumerate(rows):
            if info == relative:
                yield Relocation(address, addend, section.offset + number * size + 16)


def refuse_symbols(elf: Elf, section: Section) -> None:
    """Raise LeaveAloneError if an exported symbol is in the fat binary."""
    for table in elf.sections:
        if table.type == DYNSYM:
            data = elf.content(table)
            rows = struct.iter_unpack(SYMBOL, data[: len(data) // 24 * 24])
            if any(row[3] == section.number for row in rows):
                raise LeaveAloneError("it exports symbols in its code")


def find_bundles(elf: Elf, section: Section, pointers: tuple[Pointer, ...]) -> Iterator[Bundle]:
    """The bundles that pointers refer to, in order; together they are the whole section."""
    data = elf.content(section)
    starts = sorted({pointer.start for pointer in pointers})
    if not starts or starts[0]:
        raise LeaveAloneError("its code does not begin with a bundle")
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        if data[start : start + len(COMPRESSED)] == COMPRESSED:
            raise LeaveAloneError("its code is compressed (CCOB)")
        try:
            entries = read_bundle(data[start:end])
        except ValueError as error:
            raise LeaveAloneError(f"{error} at {start:#x} of {FATBIN}") from error
        yield Bundle(start, end - start, entries)
