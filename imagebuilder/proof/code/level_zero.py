# SPDX-License-Identifier: Apache-2.0
"""Code for Intel's GPUs: SPIR-V, which the driver compiles, and native code compiled ahead of time.

SYCL libraries have both in sections that are named by target (clang's offload wrapper, seen in
bitsandbytes): `sycl-spir64` is SPIR-V, `sycl-spir64_gen` what ocloc made, an ar(5) archive with an
ELF file (EM_INTELGT) per device, called by its IP version, `64.12.55.8`.  Either may be a zstd
frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import zstandard

from imagebuilder.elf import INTELGT, Elf
from imagebuilder.proof.reading.code import CodeObject, Form

SPIRV = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
ZSTD = b"\x28\xb5\x2f\xfd"
ARCHIVE = b"!<arch>\n"
MOST = 1 << 28
# IP versions by ocloc's name of a family (compute-runtime, platforms.h).
FAMILIES = {
    "dg2": ("12.55.", "12.56.", "12.57."),
    "mtl": ("12.70.", "12.71."),
    "arl": ("12.70.", "12.71.", "12.74."),
    "bmg": ("20.1.", "20.2."),
    "lnl": ("20.4.",),
    "ptl": ("30.0.", "30.1."),
    "xe-hpg": ("12.55.", "12.56.", "12.57."),
    "xe-lpg": ("12.70.", "12.71."),
    "xe-hpc": ("12.60.", "12.61."),
    "xe2": ("20.1.", "20.2.", "20.4."),
}


def serves(code: CodeObject, target: str) -> Form | None:
    """How a GPU with this target runs the code; None if it cannot."""
    if code.form is Form.FORWARD:
        return Form.FORWARD
    family = FAMILIES.get(target, ())
    return Form.NATIVE if code.target.startswith(family) and family else None


def read_level_zero(file: Elf) -> list[CodeObject]:
    """All code for Intel's GPUs in an ELF file, which may itself be code."""
    if file.header.machine == INTELGT:
        return [CodeObject("an Intel GPU", Form.NATIVE, len(file.data), "")]
    found: list[CodeObject] = []
    for section in file.sections:
        if section.name.startswith("__CLANG_OFFLOAD_BUNDLE__sycl-spir64"):
            for number, (_, offset, size) in enumerate(file.pieces(section)):
                content = bytes(file.data[offset : offset + size])
                found += read_module(content, section.name, number)
    return found


def read_module(content: bytes, section: str = "", number: int = 0) -> list[CodeObject]:
    """The code in one module: SPIR-V, an archive by ocloc, or nothing known."""
    if content.startswith(ZSTD):
        try:
            content = zstandard.ZstdDecompressor().stream_reader(BytesIO(content)).read(MOST)
        except zstandard.ZstdError as error:
            return [CodeObject("", Form.NATIVE, 0, section, number, f"cannot be unpacked: {error}")]
    if content.startswith(SPIRV):
        return [CodeObject("SPIR-V", Form.FORWARD, len(content), section, number)]
    if content.startswith(ARCHIVE):
        return [
            CodeObject(name, form, size, section, number) for name, form, size in members(content)
        ]
    return []


def members(archive: bytes) -> Iterator[tuple[str, Form, int]]:
    """The devices in an archive by ocloc: IP version, form, bytes (ar(5): heads of 60 bytes)."""
    place = len(ARCHIVE)
    while place + 60 <= len(archive):
        head = archive[place : place + 60]
        name, length = head[:16].decode(errors="replace").rstrip(" /"), head[48:58].strip()
        size = int(length) if length.isdigit() else 0
        if name == "generic_ir":
            yield "SPIR-V", Form.FORWARD, size
        elif not name.startswith("pad_"):
            yield name.removeprefix("64.").removeprefix("32."), Form.NATIVE, size
        place += 60 + size + size % 2
