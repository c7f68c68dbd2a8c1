# SPDX-License-Identifier: Apache-2.0
"""HIP code objects: bundles in `.hip_fatbin`, compressed or not, and code objects in files.

A library has one bundle per source file, and for each a wrapper in `.hipFatBinSegment` ("HIPF",
version, pointer to the bundle; hipcc's HIPFatBinaryWrapper) that is registered when it is loaded.
We follow those pointers, as the runtime does, through relocations and program headers: a slimmed
file has holes in its section.  Formats: LLVM's ClangOffloadBundler, AMDGPUUsage.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from mmap import mmap

import zstandard

from imagebuilder.elf import AMDGPU, LOAD, MAGIC, Elf, Section
from imagebuilder.proof.code.types import CodeObject, Form, Reader

SECTION, WRAPPERS, RELOCATIONS = ".hip_fatbin", ".hipFatBinSegment", ".rela.dyn"
BUNDLE, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
WRAPPER = struct.Struct("<IIQQ")
HIPF = 0x48495046
PROGRAM = struct.Struct("<IIQQQQQQ")
EXECUTE = 1  # PF_X
HOLE = bytes(1 << 16)
# r_type: R_X86_64_RELATIVE, R_AARCH64_RELATIVE.
RELATIVE = (8, 1027)
MOST_ENTRIES, MOST_ID = 1024, 512
# The part of a compressed bundle that is read: its names, and the head of its first code object.
PREFIX = 1 << 20
EF_AMDGPU_MACH = 0xFF
# EF_AMDGPU_MACH_AMDGCN_* (LLVM's ELF.h, AMDGPUUsage).
MACHS = {
    0x20: "gfx600", 0x21: "gfx601", 0x3A: "gfx602", 0x22: "gfx700", 0x23: "gfx701", 0x24: "gfx702",
    0x25: "gfx703", 0x26: "gfx704", 0x3B: "gfx705", 0x28: "gfx801", 0x29: "gfx802", 0x2A: "gfx803",
    0x3C: "gfx805", 0x2B: "gfx810", 0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906",
    0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c", 0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941",
    0x4C: "gfx942", 0x4F: "gfx950", 0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012",
    0x42: "gfx1013", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033",
    0x3E: "gfx1034", 0x3D: "gfx1035", 0x45: "gfx1036", 0x41: "gfx1100", 0x46: "gfx1101",
    0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150", 0x4A: "gfx1151", 0x55: "gfx1152",
    0x58: "gfx1153", 0x48: "gfx1200", 0x4E: "gfx1201", 0x49: "gfx1250", 0x51: "gfx9-generic",
    0x5F: "gfx9-4-generic", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic",
    0x54: "gfx11-generic", 0x59: "gfx12-generic",
}  # fmt: skip
# The targets that a generic target runs on (AMDGPUUsage, "Generic processors").
FAMILIES = {
    "gfx9-generic": "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c",
    "gfx9-4-generic": "gfx940 gfx941 gfx942 gfx950",
    "gfx10-1-generic": "gfx1010 gfx1011 gfx1012 gfx1013",
    "gfx10-3-generic": "gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036",
    "gfx11-generic": "gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153",
    "gfx12-generic": "gfx1200 gfx1201",
}
# Suffixes of files that contain only code.
KERNELS = (".co", ".hsaco")
# TensileLibrary_..._gfx90a-xnack-.hsaco, Kernels.so-000-gfx1102.hsaco
IN_NAME = re.compile(r"gfx(?:[0-9]+(?:-[0-9]+)?-generic|[0-9]+[0-9a-f]{2}(?![0-9a-z]))")


def serves(code: CodeObject, target: str) -> bool:
    name = code.target.partition(":")[0]
    return name == target or target in FAMILIES.get(name, "").split()


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
    for section in file.named(SECTION):
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
    for table in file.named(RELOCATIONS):
        content = file.at(table.addr, table.size)
        for place, info, addend in struct.iter_unpack("<QQq", content[: len(content) // 24 * 24]):
            if info & 0xFFFFFFFF in RELATIVE:
                addends[place] = addend
    for section in wrappers:
        content = file.at(section.addr, section.size)
        for start in range(0, len(content) - WRAPPER.size + 1, WRAPPER.size):
            magic, _, pointer, _ = WRAPPER.unpack_from(content, start)
            if magic == HIPF:
                # With RELR relocations, and in a program at a fixed address, it is in its place.
                yield addends.get(section.addr + start + 8, pointer)


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
    """The table of a bundle: each code object and its position.  If only `part` bytes of a bundle
    are known, code objects behind them are not checked.
    """
    head = at(start, 32)
    if not head.startswith(BUNDLE):
        what = "is not in the file" if not head else "does not start like a bundle"
        yield CodeObject("", Form.NATIVE, 0, section, number, what), start
        return
    (count,) = struct.unpack_from("<Q", head, 24)
    place = start + 32
    for _ in range(min(count, MOST_ENTRIES)):
        fields = at(place, 24)
        if not fields:
            return
        offset, size, length = struct.unpack("<QQQ", fields)
        name = at(place + 24, min(length, MOST_ID)).decode(errors="replace")
        place += 24 + length
        if not size or name.startswith("host"):
            continue
        target = name.rpartition("--")[2]
        problem = ""
        if part is None or offset + size <= part:
            problem = problem_of(at, start + offset, size, target)
        yield CodeObject(target, Form.NATIVE, size, section, number, problem), start + offset


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
