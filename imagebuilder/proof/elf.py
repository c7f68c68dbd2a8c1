# SPDX-License-Identifier: Apache-2.0
"""ELF files, read two ways: the dynamic section of very many, and the bytes of a large one.

`read_needs()` looks at the headers and the dynamic section and at nothing else, with struct:
pyelftools takes 1.7 ms a file for that (measured), nine seconds for the five thousand of a root
with vLLM; this takes 0.1 ms, and a test holds the two against each other.  What is inside of a
file (sections, relocations) pyelftools reads.  Layout: elf(5), System V ABI.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF"
# e_machine (elf.h).
X86_64, AARCH64, CUDA, INTELGT, AMDGPU = 62, 183, 190, 205, 224
MACHINES = {
    3: "i386", 40: "arm", X86_64: "x86-64", AARCH64: "arm64", 243: "riscv64", 247: "BPF",
    CUDA: "NVIDIA GPU", INTELGT: "Intel GPU", AMDGPU: "AMD GPU",
}  # fmt: skip
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 10, 14, 15, 29
ET_EXEC, ET_DYN = 2, 3
# Larger dynamic sections and string tables do not occur; a broken file is not to cost memory.
MOST_DYNAMIC, MOST_STRINGS = 1 << 20, 1 << 28
# What pyelftools raises for a file that is cut short or nonsense.
BROKEN = (
    ELFError, ArithmeticError, ValueError, LookupError, AttributeError, TypeError, struct.error,
    OSError,
)  # fmt: skip


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
    """The needs of an ELF file with a dynamic section; None for anything else.

    Big-endian files have none for us: no node is.  Raises OSError.
    """
    with Path(path).open("rb", buffering=0) as file:
        head = file.read(4096)
        if len(head) < 64 or head[:4] != MAGIC or head[5] != 1:
            return None
        machine, kind = (
            struct.unpack_from("<HH", head, 18)[0],
            struct.unpack_from("<H", head, 16)[0],
        )
        if kind not in (ET_EXEC, ET_DYN):
            return None
        try:
            return needs_of(file, head, machine)
        except BROKEN:
            return None


def needs_of(file: BinaryIO, head: bytes, machine: int) -> Needs | None:
    """The same of a file whose first page is `head`.  Raises struct.error and ValueError."""
    wide = head[4] == 2
    place, length, count = (
        (*struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54))
        if wide
        else (*struct.unpack_from("<I", head, 28), *struct.unpack_from("<HH", head, 42))
    )
    table = head[place : place + length * count]
    if len(table) < length * count:
        table = part(file, place, length * count)
    loads, dynamic, interpreter = [], None, ""
    for start in range(0, len(table), length):
        if wide:
            sort, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", table, start)
        else:
            sort, offset, address, _, size = struct.unpack_from("<IIIII", table, start)
        if sort == PT_LOAD:
            loads.append((address, offset, size))
        elif sort == PT_DYNAMIC:
            dynamic = (offset, size)
        elif sort == PT_INTERP:
            interpreter = part(file, offset, min(size, 4096)).rstrip(b"\0").decode()
    if dynamic is None:
        return None
    entries = dynamic_entries(part(file, dynamic[0], min(dynamic[1], MOST_DYNAMIC)), wide=wide)
    values = dict(entries)
    strings = b""
    if DT_STRTAB in values:
        where = offset_of(values[DT_STRTAB], loads)
        strings = part(file, where, min(values.get(DT_STRSZ, 0), MOST_STRINGS))

    def text(tag: int) -> str:
        return string_at(strings, values[tag]) if tag in values else ""

    return Needs(
        machine,
        64 if wide else 32,
        text(DT_SONAME),
        tuple(string_at(strings, value) for tag, value in entries if tag == DT_NEEDED),
        tuple(folder for folder in text(DT_RPATH).split(":") if folder),
        tuple(folder for folder in text(DT_RUNPATH).split(":") if folder),
        interpreter,
    )


def dynamic_entries(table: bytes, *, wide: bool) -> list[tuple[int, int]]:
    """(tag, value) up to DT_NULL."""
    found = []
    whole = len(table) - len(table) % (16 if wide else 8)
    for tag, value in struct.iter_unpack("<qQ" if wide else "<iI", table[:whole]):
        if tag == 0:
            break
        found.append((tag, value))
    return found


def offset_of(address: int, loads: list[tuple[int, int, int]]) -> int:
    """Where in the file an address is.  Raises ValueError when the file does not hold it."""
    for start, offset, size in loads:
        if start <= address < start + size:
            return offset + address - start
    raise ValueError(address)


def part(file: BinaryIO, offset: int, size: int) -> bytes:
    """Bytes of a file.  Raises ValueError when it ends before."""
    file.seek(offset)
    found = file.read(size)
    if len(found) < size:
        raise ValueError(offset)
    return found


def string_at(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode(errors="replace")


@dataclass(frozen=True)
class LoadSegment:
    """A PT_LOAD: `size` bytes of the file from `offset` are at `address`."""

    address: int
    offset: int
    size: int


@dataclass(frozen=True)
class MappedSection:
    """A section's range of addresses.  Whether the file holds it, its segments say: after slimming
    a section may be one of several pieces, with holes between.
    """

    name: str
    address: int
    size: int
    offset: int
    in_file: bool


@dataclass(frozen=True)
class Opened:
    """An ELF file that is mapped, not read: 1.2 GB cost what is touched of it."""

    data: mmap.mmap
    elf: ELFFile
    segments: tuple[LoadSegment, ...]
    sections: tuple[MappedSection, ...]

    @property
    def machine(self) -> int:
        return int(struct.unpack_from("<H", self.data, 18)[0])

    def named(self, name: str) -> list[MappedSection]:
        return [section for section in self.sections if section.name == name]

    def offset(self, address: int, size: int = 1) -> int | None:
        """Where in the file `size` bytes at an address are; None when it does not hold them all."""
        for segment in self.segments:
            if segment.address <= address and address + size <= segment.address + segment.size:
                return segment.offset + address - segment.address
        return None

    def at(self, address: int, size: int) -> bytes:
        """The bytes at an address, none when the file does not hold them all."""
        place = self.offset(address, size)
        return b"" if place is None else self.data[place : place + size]

    def held(self, section: MappedSection) -> Iterator[tuple[int, int, int]]:
        """The parts of a section that the file holds: (address, offset, size)."""
        if not section.address:
            if section.in_file:
                yield 0, section.offset, section.size
            return
        for segment in self.segments:
            start = max(section.address, segment.address)
            end = min(section.address + section.size, segment.address + segment.size)
            if start < end:
                yield start, segment.offset + start - segment.address, end - start


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Opened | None]:
    """An ELF file (64 bits, little-endian), or None for what is none.  Raises OSError."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 64 or file.read(6) != MAGIC + b"\x02\x01":
            yield None
            return
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            yield understand(data, size)


def understand(data: mmap.mmap, size: int) -> Opened | None:
    """What the headers say of a mapped file; None when they are nonsense."""
    try:
        # A mapping reads and seeks as a file does.
        elf = ELFFile(cast("IO[bytes]", data))
        segments = tuple(
            LoadSegment(
                one["p_vaddr"], one["p_offset"], min(one["p_filesz"], size - one["p_offset"])
            )
            for one in elf.iter_segments("PT_LOAD")
            if one["p_offset"] < size
        )  # fmt: skip
        sections = tuple(
            MappedSection(
                one.name,
                one["sh_addr"],
                one["sh_size"],
                one["sh_offset"],
                one["sh_type"] != "SHT_NOBITS" and one["sh_offset"] + one["sh_size"] <= size,
            )
            for one in elf.iter_sections()
        )
    except BROKEN:
        return None
    return Opened(data, elf, segments, sections)
