# SPDX-License-Identifier: Apache-2.0
"""Code objects for AMD GPUs in a library, as clang bundles them and HIP finds them.

A bundle (clang's documentation, ClangOffloadBundler), all numbers little-endian:

    __CLANG_OFFLOAD_BUNDLE__   24 bytes
    number of entries          u64
    per entry                  u64 offset in the bundle, u64 size, u64 length of its id, the id
    code objects               each at a multiple of the page size

An id is `host-x86_64-unknown-linux-gnu-` (always empty) or
`hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`.

A library has a bundle in `.hip_fatbin` per translation unit, and for each a wrapper in
`.hipFatBinSegment` that is registered when the library is loaded (clang's lib/CodeGen/CGCUDANV.cpp;
ROCm's hipamd/src/hip_platform.cpp reads them):

    u32 magic 0x48495046, u32 version, pointer to the bundle, pointer (unused)

In a shared library the pointer is a relative relocation: its addend is the bundle's address.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from imagebuilder.elf import AARCH64, X86_64

BUNDLE, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
FATBIN, WRAPPERS = ".hip_fatbin", ".hipFatBinSegment"
WRAPPER = struct.Struct("<IIQQ")
WRAPPER_MAGIC = 0x48495046
POINTER = 8  # its offset in a wrapper
RELOCATION = struct.Struct("<QQq")  # Elf64_Rela
# R_*_RELATIVE by e_machine.
RELATIVE = {X86_64: 8, AARCH64: 1027}
MOST_ENTRIES, MOST_ID = 1024, 512  # a bundle has fewer entries, and shorter ids
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
# A target in an id or a file's name: a card's, or a generic one.
TARGET = re.compile(r"gfx[0-9]+(?:-[0-9]+)*-generic|gfx[0-9]+[0-9a-f]{2}(?![0-9a-z])")

# `size` bytes at a position; empty if not all of them exist.
Reader = Callable[[int, int], bytes]


@dataclass(frozen=True)
class BundleEntry:
    """A code object, its position in the bundle, and the first MOST_ID bytes of its id."""

    offset: int
    size: int
    id: bytes

    @property
    def name(self) -> str:
        return self.id.decode(errors="replace")

    @property
    def target(self) -> str:
        """`gfx90a`; "" for the host."""
        found = TARGET.search(self.name.partition("--")[2].partition(":")[0])
        return found[0] if found else ""


def count_entries(at: Reader, start: int) -> int:
    """How many entries the bundle at `start` says it has."""
    (count,) = struct.unpack("<Q", at(start + len(BUNDLE), 8) or bytes(8))
    return int(count)


def read_entries(at: Reader, start: int) -> Iterator[BundleEntry]:
    """The first MOST_ENTRIES entries of the bundle at `start`, as far as they can be read."""
    place = start + len(BUNDLE) + 8
    for _ in range(min(count_entries(at, start), MOST_ENTRIES)):
        fields = at(place, 24)
        if not fields:
            return
        offset, size, length = struct.unpack("<QQQ", fields)
        yield BundleEntry(offset, size, at(place + 24, min(length, MOST_ID)))
        place += 24 + length


def runs_on(code: str, card: str) -> bool:
    """Whether code for the target `code` runs on `card`, as LLVM documents it."""
    return code == card or card in FAMILIES.get(code, "").split()
