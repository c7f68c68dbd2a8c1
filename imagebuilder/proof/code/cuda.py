# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's code: cubins and PTX in the fat binaries of a library, and cubins in files.

    .nv_fatbin       containers, one after the other, which the runtime loads
    __nv_relfatbin   the same before device linking: its cubins are only inputs of the linker
    container        magic 0xBA55ED50, version 1, length of this head (16), length of all entries
    entry            head of 64 bytes and more, then the content, padded to 8 bytes

NVIDIA does not document this format; it was derived from what cuobjdump of CUDA 12.8 lists of
libcurand, libcusparseLt and bitsandbytes (compared with the ELF flags of 1,600 cubins).  For which
code runs where, see CUDA C++ Programming Guide, "Application Compatibility", and "Feature
availability" for the suffixes a and f.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from imagebuilder.elf import CUDA, MAGIC, Elf, Section
from imagebuilder.proof.reading.code import CodeObject, Form

LINKED, UNLINKED = ".nv_fatbin", "__nv_relfatbin"
CONTAINER = struct.Struct("<IHHQ")
CONTAINER_MAGIC = struct.pack("<I", 0xBA55ED50)
# kind, version, length of the head, padded length, length of the compressed content, options,
# two versions, number of the architecture, name (offset, length), flags, 0, length unpacked.
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
PTX, CUBIN = 1, 2
# Flags of an entry that make it `sm_90a` or `sm_120f`.
SPECIFIC, FAMILY = 1 << 20, 1 << 21
# Systems on chip that only run their own code, which no other GPU runs (Jetson; same guide).
ALONE = (53, 62, 72, 87, 101, 110)
NAME = re.compile(r"sm_(\d+)([af]?)")


def serves(code: CodeObject, target: str) -> Form | None:
    """How a GPU with this target runs the code; None if it cannot.

    A cubin runs on its own generation from its own revision on; PTX is compiled for any later one.
    """
    has, wants = NAME.fullmatch(code.target), NAME.fullmatch(target)
    if has is None or wants is None or code.form is Form.UNLINKED:
        return None
    made, card = int(has[1]), int(wants[1])
    if made == card:
        return code.form
    if has[2] == "a" or made > card:
        return None
    same = made // 10 == card // 10
    if code.form is Form.FORWARD:
        return Form.FORWARD if same or has[2] != "f" else None
    return Form.NATIVE if same and made not in ALONE and card not in ALONE else None


def read_cuda(file: Elf) -> list[CodeObject]:
    """All code for NVIDIA GPUs in an ELF file, which may itself be a cubin."""
    if file.header.machine == CUDA:
        return [CodeObject(cubin_target(file.data[:64]), Form.NATIVE, len(file.data), "")]
    found: list[CodeObject] = []
    for name in (LINKED, UNLINKED):
        for section in file.named(name):
            found += read_section(file, section)
    return found


def cubin_target(head: bytes) -> str:
    """The architecture in the flags of a cubin's ELF head: EF_CUDA_SM of LLVM's ELF.h.

    From version 8 of the ABI on the number is in the second byte, before in the first.
    """
    (flags,) = struct.unpack_from("<I", head, 48)
    if head[8] >= 8:
        number, specific = flags >> 8 & 0xFF, flags & 0x8
    else:
        number, specific = flags & 0xFF, flags & 0x800
    return f"sm_{number}{'a' if specific else ''}"


def read_section(file: Elf, section: Section) -> Iterator[CodeObject]:
    number = 0
    for _, offset, size in file.pieces(section):
        place, end = offset, offset + size
        while (place := file.data.find(CONTAINER_MAGIC, place, end)) >= 0:
            head = file.data[place : place + CONTAINER.size]
            if len(head) < CONTAINER.size:
                return
            _, version, length, content = CONTAINER.unpack(head)
            if (version, length) != (1, CONTAINER.size) or place + length + content > end:
                place += 4
                continue
            place += length
            yield from read_entries(file, section.name, number, place, place + content)
            place += content
            number += 1


def read_entries(
    file: Elf, section: str, number: int, place: int, end: int
) -> Iterator[CodeObject]:
    """The cubins and the PTX of one container, without intermediate code for a linker."""
    while place + ENTRY.size <= end:
        kind, _, head, padded, packed, _, _, _, arch, _, _, flags, _, _ = ENTRY.unpack_from(
            file.data, place
        )
        if head < ENTRY.size or place + head + padded > end:
            return
        content = file.data[place + head : place + head + min(64, packed or padded)]
        place += head + padded
        if kind not in (PTX, CUBIN):
            continue
        form = Form.FORWARD if kind == PTX else Form.NATIVE
        if section == UNLINKED and kind == CUBIN:
            form = Form.UNLINKED
        suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
        target = f"sm_{arch}{suffix}"
        problem = "" if any(content) else "contains only zeros"
        if not problem and kind == CUBIN and len(content) == 64 and content.startswith(MAGIC):
            problem = problem_of(content, arch)
        yield CodeObject(target, form, padded, section, number, problem)


def problem_of(head: bytes, arch: int) -> str:
    """Why an uncompressed cubin does not match the architecture of its entry, else ""."""
    (machine,) = struct.unpack_from("<H", head, 18)
    if machine != CUDA:
        return f"is for e_machine {machine}, not for an NVIDIA GPU"
    is_for = cubin_target(head)
    if is_for.rstrip("a") != f"sm_{arch}":
        return f"is for {is_for} (e_flags)"
    return ""
