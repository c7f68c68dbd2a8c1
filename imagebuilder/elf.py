# SPDX-License-Identifier: Apache-2.0
"""ELF files: headers, segments, sections, and what ld.so reads first.

elf(5), System V ABI; little-endian, as every node is.  Read with struct: pyelftools takes 1.7 ms
for the needs of a file, nine seconds for the five thousand of a root with vLLM; read_needs() takes
0.1 ms, and a test holds the two against each other.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from imagebuilder.limited import map_file

MAGIC = b"\x7fELF"
SMALLEST = 52  # bytes of the header of a 32-bit file
# e_machine (elf.h).
X86_64, AARCH64, CUDA, INTELGT, AMDGPU = 62, 183, 190, 205, 224
MACHINES = {
    3: "i386", 40: "arm", X86_64: "x86-64", AARCH64: "arm64", 243: "riscv64", 247: "BPF",
    CUDA: "NVIDIA GPU", INTELGT: "Intel GPU", AMDGPU: "AMD GPU",
}  # fmt: skip
EXEC, DYN = 2, 3
LOAD, DYNAMIC, INTERP, PHDR = 1, 2, 3, 6
RELA, NOBITS, DYNSYM, RELR = 4, 8, 11, 19
NEEDED, STRTAB, STRSZ, SONAME, RPATH, RUNPATH = 1, 5, 10, 14, 15, 29
EHDR = "<16sHHIQQQIHHHHHH"
SEGMENT = "<IIQQQQQQ"
# By EI_CLASS: the header, a segment, a section, an entry of the dynamic section.
LAYOUTS = {1: ("<16sHHIIIIIHHHHHH", "<8I", "<10I", "<iI"), 2: (EHDR, SEGMENT, "<IIQQQQIIQQ", "<qQ")}
# Larger dynamic sections and string tables do not occur; a broken file is not to cost memory.
# Each of 65,535 sections may have the same text as its name.
MOST_DYNAMIC, MOST_STRINGS, MOST_NAME = 1 << 20, 1 << 28, 1 << 13


class Header(NamedTuple):
    """The file's header; the offsets and counts that are not here never change."""

    bits: int
    type: int
    machine: int
    phoff: int
    shoff: int
    phnum: int
    shnum: int
    shstrndx: int


class Segment(NamedTuple):
    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int

    def pack(self) -> bytes:
        """As it lies in a file of 64 bits."""
        return struct.pack(SEGMENT, *self)


class Section(NamedTuple):
    """A section header; `number` is its place in the table."""

    number: int
    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The file offset behind its content."""
        return self.offset + (0 if self.type == NOBITS else self.size)


@dataclass(frozen=True)
class Elf:
    """A file, its headers read once: of 1.2 GB that are mapped it costs what is touched."""

    data: mmap.mmap | bytes
    header: Header
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]

    def find(self, name: str) -> Section | None:
        return next(iter(self.named(name)), None)

    def named(self, name: str) -> list[Section]:
        return [section for section in self.sections if section.name == name]

    def content(self, section: Section) -> memoryview:
        return memoryview(self.data)[section.offset : section.end]

    def holds(self, section: Section) -> bool:
        """Whether all of a section is in the file, one piece."""
        return section.type != NOBITS and section.end <= len(self.data)

    def offset(self, address: int, size: int = 1) -> int | None:
        """Where in the file `size` bytes at an address are; None when it does not hold them all."""
        for start, offset, length in self.loads():
            if start <= address and address + size <= start + length:
                return offset + address - start
        return None

    def at(self, address: int, size: int) -> bytes:
        """The bytes at an address, none when the file does not hold them all."""
        place = self.offset(address, size)
        return b"" if place is None else self.data[place : place + size]

    def pieces(self, section: Section) -> Iterator[tuple[int, int, int]]:
        """The parts of a section that the file holds: (address, offset, size).

        After slimming a section may be several, with holes between; its segments say which.
        """
        if not section.addr:
            if self.holds(section):
                yield 0, section.offset, section.size
            return
        for address, offset, size in self.loads():
            start = max(section.addr, address)
            end = min(section.addr + section.size, address + size)
            if start < end:
                yield start, offset + start - address, end - start

    def loads(self) -> Iterator[tuple[int, int, int]]:
        """What is loaded of the bytes that are there: (address, offset, size)."""
        for one in self.segments:
            if one.type == LOAD and one.offset < len(self.data):
                yield one.vaddr, one.offset, min(one.filesz, len(self.data) - one.offset)


def read_elf(data: mmap.mmap | bytes, *, sections: bool = True) -> Elf | None:
    """The file in `data`; None when it is no little-endian ELF file.

    Raises ValueError when it is one, but damaged.  Sections may end behind it: see Elf.holds().
    """
    if len(data) < SMALLEST or data[:4] != MAGIC or data[4] not in LAYOUTS or data[5] != 1:
        return None
    ehdr, phdr, shdr, _ = LAYOUTS[data[4]]
    try:
        words = struct.unpack_from(ehdr, data)
        header = Header(
            32 * data[4], words[1], words[2], words[5], words[6], words[10], words[12], words[13]
        )
        rows = read_table(data, phdr, header.phoff, header.phnum)
        if data[4] == 1:  # the flags come later
            rows = [(row[0], row[6], *row[1:6], row[7]) for row in rows]
        segments = tuple(map(Segment._make, rows))
        found = read_sections(data, shdr, header) if sections and header.shnum else ()
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise ValueError("a damaged ELF file") from error
    return Elf(data, header, segments, found)


def read_table(
    data: mmap.mmap | bytes, layout: str, offset: int, count: int
) -> list[tuple[int, ...]]:
    """`count` rows of a table.  Raises struct.error when the file ends before."""
    size = struct.calcsize(layout)
    return [struct.unpack_from(layout, data, offset + number * size) for number in range(count)]


def read_sections(data: mmap.mmap | bytes, layout: str, header: Header) -> tuple[Section, ...]:
    """Every section.  Raises struct.error, IndexError and ValueError."""
    rows = read_table(data, layout, header.shoff, header.shnum)
    names = rows[header.shstrndx]
    texts = bytes(data[names[4] : names[4] + names[5]])
    return tuple(
        Section(number, text_at(texts, row[0]), row[1], row[2], row[3], row[4], row[5])
        for number, row in enumerate(rows)
    )


def text_at(texts: bytes, offset: int) -> str:
    """A text of a string table.  Raises ValueError, also for one that is too long."""
    return texts[offset : texts.index(b"\0", offset, offset + MOST_NAME)].decode(errors="replace")


def find_elf(path: str | os.PathLike[str]) -> Elf | None:
    """The 64-bit ELF file at `path`; None for what is none, or damaged.  Raises OSError."""
    try:
        elf = read_elf(map_file(path))
    except ValueError:
        return None
    return elf if elf and elf.header.bits == 64 else None


@dataclass(frozen=True)
class Needs:
    """What ld.so reads of a program or shared object first.

    `needed` are the DT_NEEDED in their order; `rpath` and `runpath` folders as they are written,
    with `$ORIGIN`; `interpreter` is "" for a library.
    """

    machine: int
    bits: int
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str = ""


def read_needs(path: str | os.PathLike[str]) -> Needs | None:
    """The needs of an ELF file with a dynamic section; None for anything else.  Raises OSError."""
    try:
        elf = read_elf(map_file(path), sections=False)
        return needs_of(elf) if elf and elf.header.type in (EXEC, DYN) else None
    except ValueError:
        return None


def needs_of(elf: Elf) -> Needs | None:
    """The same of a file that was read; None without a dynamic section.  Raises ValueError."""
    segments = {segment.type: segment for segment in elf.segments}
    if DYNAMIC not in segments:
        return None
    entries = dynamic_entries(elf, segments[DYNAMIC])
    values = dict(entries)
    strings = b""
    if STRTAB in values:
        size = min(values.get(STRSZ, 0), MOST_STRINGS)
        place = elf.offset(values[STRTAB])
        if place is None or place + size > len(elf.data):
            raise ValueError(size)
        strings = elf.data[place : place + size]

    def text(tag: int) -> str:
        return text_at(strings, values[tag]) if tag in values else ""

    asks = segments.get(INTERP)
    interpreter = elf.data[asks.offset : asks.offset + min(asks.filesz, 4096)] if asks else b""
    return Needs(
        elf.header.machine,
        elf.header.bits,
        text(SONAME),
        tuple(text_at(strings, value) for tag, value in entries if tag == NEEDED),
        tuple(folder for folder in text(RPATH).split(":") if folder),
        tuple(folder for folder in text(RUNPATH).split(":") if folder),
        interpreter.rstrip(b"\0").decode(),
    )


def dynamic_entries(elf: Elf, dynamic: Segment) -> list[tuple[int, int]]:
    """(tag, value) up to DT_NULL.  Raises ValueError when the file ends before."""
    layout = LAYOUTS[elf.header.bits // 32][3]
    size = min(dynamic.filesz, MOST_DYNAMIC)
    if dynamic.offset + size > len(elf.data):
        raise ValueError(dynamic.offset)
    table = elf.data[dynamic.offset : dynamic.offset + size - size % struct.calcsize(layout)]
    return list(takewhile(lambda entry: entry[0], struct.iter_unpack(layout, table)))
