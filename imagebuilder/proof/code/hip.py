# SPDX-License-Identifier: Apache-2.0
"""HIP code objects: bundles in `.hip_fatbin`, compressed or not, code objects in files, and folders
of such files that Tensile makes.

We follow the pointers of the wrappers (imagebuilder/offload.py), as the runtime does, through
relocations and program headers: a slimmed file has holes in its section.

Tensile makes kernels for rocBLAS and hipBLASLt, in one folder for all targets:

    TensileLibrary_lazy_gfx1102.dat                 names the others, opened on demand
    TensileLibrary_Type_HH_..._gfx1102.{dat,co}     solutions and their kernels
    TensileLibrary_Type_HH_..._fallback.dat         solutions for every target
    TensileLibrary_Type_HH_..._fallback_gfx1102.hsaco  and their kernels for this one

A missing kernel file is only noticed when a program multiplies matrices of that type.
"""

from __future__ import annotations

import posixpath
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from mmap import mmap

import zstandard

from imagebuilder.elf import AMDGPU, LOAD, MAGIC, Elf, Section
from imagebuilder.offload import (
    BUNDLE,
    COMPRESSED,
    EF_AMDGPU_MACH,
    FATBIN,
    MACHS,
    POINTER,
    RELATIVE,
    RELOCATION,
    WRAPPER,
    WRAPPER_MAGIC,
    WRAPPERS,
    Reader,
    read_entries,
    runs_on,
)
from imagebuilder.proof.reading.code import CodeObject, Form
from imagebuilder.root import Root

PROGRAM = struct.Struct("<IIQQQQQQ")
EXECUTE = 1  # PF_X
HOLE = bytes(1 << 16)
# The part of a compressed bundle that is read: its names, and the head of its first code object.
PREFIX = 1 << 20
# Suffixes of files that contain only code.
KERNELS = (".co", ".hsaco")
BEGINS = b"TensileLibrary_"
# A string of MessagePack: its length is in the byte before, or in the lower bits of it.
STR8, FIXSTR = 0xD9, 0xA0


def serves(code: CodeObject, target: str) -> bool:
    return runs_on(code.target.partition(":")[0], target)


def read_hip(file: Elf, wanted: str = "") -> list[CodeObject]:
    """All code objects for AMD GPUs in an ELF file, which may itself be one.

    Those that run on `wanted` are checked completely, of others only the head.
    """
    if file.header.machine == AMDGPU:
        flags = struct.unpack_from("<I", file.data, 48)[0]
        target = MACHS.get(flags & EF_AMDGPU_MACH, f"EF_AMDGPU_MACH {flags & EF_AMDGPU_MACH:#x}")
        problem = hollow(file.data[:]) if target == wanted else ""
        return [CodeObject(target, Form.NATIVE, len(file.data), "", 0, problem)]
    found: list[CodeObject] = []
    for section in file.named(FATBIN):
        for number, address in enumerate(bundles_of(file, section)):
            found += read_bundle(file.at, address, section.name, number, wanted=wanted)
    return found


def bundles_of(file: Elf, section: Section) -> list[int]:
    end = section.addr + section.size
    pointed = {place for place in pointers(file) if section.addr <= place < end}
    return sorted(pointed) or list(scan(file, section))


def pointers(file: Elf) -> Iterator[int]:
    """The addresses that the wrappers point to."""
    wrappers = file.named(WRAPPERS)
    if not wrappers:
        return
    addends: dict[int, int] = {}
    for table in file.named(".rela.dyn"):
        content = file.at(table.addr, table.size)
        whole = len(content) // RELOCATION.size * RELOCATION.size
        for place, info, addend in RELOCATION.iter_unpack(content[:whole]):
            if info & 0xFFFFFFFF in RELATIVE.values():
                addends[place] = addend
    for section in wrappers:
        content = file.at(section.addr, section.size)
        for start in range(0, len(content) - WRAPPER.size + 1, WRAPPER.size):
            magic, _, pointer, _ = WRAPPER.unpack_from(content, start)
            if magic == WRAPPER_MAGIC:
                # With RELR relocations, and in a program at a fixed address, it is in its place.
                yield addends.get(section.addr + start + POINTER, pointer)


def scan(file: Elf, section: Section) -> Iterator[int]:
    """The bundles in a section without wrappers (an object file), by their magic bytes."""
    for address, offset, size in file.pieces(section):
        place, end = offset, offset + size
        while place < end:
            starts = [file.data.find(magic, place, end) for magic in (BUNDLE, COMPRESSED)]
            place = min((start for start in starts if start >= 0), default=end)
            if place < end:
                yield address + place - offset
                place += len(COMPRESSED)


def read_bundle(
    at: Reader, start: int, section: str = "", number: int = 0, *, wanted: str = ""
) -> list[CodeObject]:
    """The code objects of the bundle at `start`, without the empty one of the host."""
    if at(start, len(COMPRESSED)) == COMPRESSED:
        unpacked = unpack_start(at, start)
        if isinstance(unpacked, str):
            return [CodeObject("", Form.NATIVE, 0, section, number, unpacked)]
        known = entries(reader(unpacked), 0, section, number, part=len(unpacked))
        return [code for code, _ in known]
    found = []
    for code, place in entries(at, start, section, number):
        sound = not code.problem and bool(wanted) and serves(code, wanted)
        problem = hollow(at(place, code.size)) if sound else ""
        found.append(replace(code, problem=problem) if problem else code)
    return found


def reader(content: bytes | mmap) -> Reader:
    """A Reader of bytes, or of a mapped file."""

    def at(place: int, size: int) -> bytes:
        found = content[place : place + size]
        return found if len(found) == size else b""

    return at


def entries(
    at: Reader, start: int, section: str, number: int, *, part: int | None = None
) -> Iterator[tuple[CodeObject, int]]:
    """The table of a bundle, with positions; code objects behind `part` bytes are not checked."""
    head = at(start, 32)
    if not head.startswith(BUNDLE):
        what = "is not in the file" if not head else "does not start like a bundle"
        yield CodeObject("", Form.NATIVE, 0, section, number, what), start
        return
    for entry in read_entries(at, start):
        if not entry.size or entry.name.startswith("host"):
            continue
        target = entry.name.rpartition("--")[2]
        place, problem = start + entry.offset, ""
        if part is None or entry.offset + entry.size <= part:
            problem = problem_of(at, place, entry.size, target)
        yield CodeObject(target, Form.NATIVE, entry.size, section, number, problem), place


def hollow(code: bytes) -> str:
    """Why a code object (an ELF file with a valid head) lacks instructions, "" if it does not.

    64 KiB of zeros are not code: AMD's compiler pads code with s_code_end.
    """
    if len(code) < 64:
        return "has no program headers"
    (table,), (count,) = struct.unpack_from("<Q", code, 32), struct.unpack_from("<H", code, 56)
    for start in range(table, table + count * PROGRAM.size, PROGRAM.size):
        if start + PROGRAM.size > len(code):
            return "has no program headers"
        sort, flags, offset, _, _, size, _, _ = PROGRAM.unpack_from(code, start)
        if sort == LOAD and flags & EXECUTE and code.find(HOLE, offset, offset + size) >= 0:
            return "is partly zeros"
    return ""


def problem_of(at: Reader, start: int, size: int, target: str) -> str:
    """Why the bytes at `start` cannot be a code object for `target`, else ""."""
    head = at(start, min(size, 52))
    if not head or not at(start + size - 1, 1):
        return "is not in the file"
    if not any(head):
        return "contains only zeros"
    if len(head) < 52 or not head.startswith(MAGIC):
        return "is not an ELF file"
    machine, flags = struct.unpack_from("<H", head, 18)[0], struct.unpack_from("<I", head, 48)[0]
    if machine != AMDGPU:
        return f"is for e_machine {machine}, not for an AMD GPU"
    mach = MACHS.get(flags & EF_AMDGPU_MACH)
    if mach is not None and mach != target.partition(":")[0]:
        return f"is for {mach} (EF_AMDGPU_MACH)"
    return ""


def unpack_start(at: Reader, start: int) -> bytes | str:
    """The first MiB of a compressed bundle, or what is wrong with it."""
    layouts = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}
    version, method = struct.unpack("<HH", at(start + 4, 4) or bytes(4))
    if version not in layouts:
        return f"has an unknown version ({version}) of the compressed format"
    layout = struct.Struct(layouts[version])
    fields = at(start + 8, layout.size)
    if not fields:
        return "is not in the file"
    begin = start + 8 + layout.size
    # Version 1 does not contain its length: read as much as there is.
    length = layout.unpack(fields)[0] - 8 - layout.size if version > 1 else PREFIX
    packed = at(begin, min(length, PREFIX)) or longest(at, begin, length)
    if version > 1 and not at(begin + length - 1, 1):
        return "is not in the file"
    try:
        if method == 1:
            return zstandard.ZstdDecompressor().stream_reader(BytesIO(packed)).read(PREFIX)
        return zlib.decompressobj().decompress(packed, PREFIX)
    except (zstandard.ZstdError, zlib.error) as error:
        return f"cannot be decompressed: {error}"


def longest(at: Reader, begin: int, most: int) -> bytes:
    """As many bytes as there are at a place, up to `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if at(begin, middle) else (low, middle - 1)
    return at(begin, low)


@dataclass(frozen=True)
class Kernels:
    """A folder of kernels for one target: the libraries in its index, and missing files."""

    folder: str
    index: str
    named: tuple[str, ...]
    missing: tuple[str, ...]


def find_kernels(root: Root, files: Sequence[str], target: str) -> Iterator[Kernels]:
    """The Tensile folders among the folders of `files`, except those with all kernels in a file."""
    for folder in dict.fromkeys(posixpath.dirname(file) for file in files):
        names = frozenset(root.names(folder))
        whole = {f"TensileLibrary_{target}.dat", "TensileLibrary.dat"} & names
        if whole or not any(name.startswith(BEGINS.decode()) for name in names):
            continue
        index = f"TensileLibrary_lazy_{target}.dat"
        named = tuple(names_in(root.read(f"{folder}/{index}") or b""))
        missing = [] if index in names else [index]
        missing += [what for one in named if (what := lacks(one, names, target))]
        yield Kernels(folder, index, named, tuple(missing))


def names_in(content: bytes) -> list[str]:
    """The libraries that an index names, each once.

    It is MessagePack; only the strings with this prefix matter, and they are read by their length.
    """
    found: dict[str, None] = {}
    for match in re.finditer(re.escape(BEGINS), content):
        start = match.start()
        before = content[max(start - 2, 0) : start]
        if len(before) == 2 and before[0] == STR8:
            length = before[1]
        elif before and before[-1] & 0xE0 == FIXSTR:
            length = before[-1] & 0x1F
        else:
            continue
        found[content[start : start + length].decode(errors="replace")] = None
    return list(found)


def lacks(name: str, names: frozenset[str], target: str) -> str:
    """The file that the library `name` lacks, "" if it is complete."""
    if f"{name}.dat" not in names:
        return f"{name}.dat"
    if {f"{name}.co", f"{name}.hsaco"} & names:
        return ""
    # The target may have features: gfx90a-xnack-.
    begins = f"{name}_{target}"
    if any(one.startswith(begins) and one.endswith((".hsaco", ".co")) for one in names):
        return ""
    return f"{begins}.hsaco" if name.endswith("fallback") else f"{name}.co"
