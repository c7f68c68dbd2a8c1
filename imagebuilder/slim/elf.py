# SPDX-License-Identifier: Apache-2.0
"""The parts of a 64-bit little-endian ELF file that change when something is taken out of it.

elf(5).  Read with struct rather than with pyelftools, because they are written again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

ELF64_LE = b"\x7fELF\x02\x01"
EXEC, DYN = 2, 3
LOAD, PHDR = 1, 6
RELA, NOBITS, RELR, DYNSYM = 4, 8, 19, 11
# R_*_RELATIVE by e_machine: x86-64, AArch64.
RELATIVE = {62: 8, 183: 1027}
EHDR = "<16sHHIQQQIHHHHHH"
SEGMENT = "<IIQQQQQQ"
SECTION = "<IIQQQQIIQQ"
RELOCATION = "<QQq"
SYMBOL = "<IBBHQQ"


@dataclass(frozen=True)
class Header:
    """The file's header; the offsets and counts that are not here never change."""

    type: int
    machine: int
    phoff: int
    shoff: int
    phnum: int
    shnum: int
    shstrndx: int


@dataclass(frozen=True)
class Segment:
    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int

    def pack(self) -> bytes:
        """As it lies in the file."""
        return struct.pack(
            SEGMENT, self.type, self.flags, self.offset, self.vaddr, self.paddr,
            self.filesz, self.memsz, self.align,
        )  # fmt: skip


@dataclass(frozen=True)
class Section:
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
    """A file, read once."""

    data: memoryview
    header: Header
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]

    def find(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    def content(self, section: Section) -> memoryview:
        """The bytes of a section."""
        return self.data[section.offset : section.end]


def read_elf(data: memoryview) -> Elf | None:
    """The file in `data`; None when it is no 64-bit little-endian ELF file with sections.

    Raises ValueError when it is one, but damaged.
    """
    if data[: len(ELF64_LE)] != ELF64_LE:
        return None
    try:
        words = struct.unpack_from(EHDR, data)
        header = Header(words[1], words[2], words[5], words[6], words[10], words[12], words[13])
        segments = tuple(
            Segment(*struct.unpack_from(SEGMENT, data, header.phoff + number * 56))
            for number in range(header.phnum)
        )
        rows = [
            struct.unpack_from(SECTION, data, header.shoff + number * 64)
            for number in range(header.shnum)
        ]
        if not rows:
            return None
        names = rows[header.shstrndx]
        texts = bytes(data[names[4] : names[4] + names[5]])
        sections = tuple(
            Section(number, name_at(texts, row[0]), row[1], row[2], row[3], row[4], row[5])
            for number, row in enumerate(rows)
        )
    except (struct.error, IndexError) as error:
        raise ValueError("a damaged ELF file") from error
    if any(s.end > len(data) for s in sections):
        raise ValueError("an ELF file that ends early")
    return Elf(data, header, segments, sections)


def name_at(texts: bytes, offset: int) -> str:
    return texts[offset : texts.index(b"\0", offset)].decode(errors="replace")
