# SPDX-License-Identifier: Apache-2.0
"""ELF files of small roots: what the roots are made of, and what `elf:` of a fault puts there.

Fixtures: they have headers and the sections in question, and no machine code.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tests.fixtures.elf import (
    AARCH64,
    LOADER,
    X86_64,
    Cubin,
    Ptx,
    hip_id,
    make_bundle,
    make_code_object,
    make_elf,
    make_fatbin,
)
from tests.unit.proof.trees import make_module

MACHINES = {"x86-64": X86_64, "aarch64": AARCH64}
C = "libc.so.6"


def program(*needed: str) -> bytes:
    """A program that needs the C library and these."""
    return make_elf(interpreter=LOADER, needed=(C, *needed))


def library(
    path: str,
    needed: Sequence[str] = (),
    *,
    hip: Sequence[str] | Mapping[str, str] = (),
    cuda: Sequence[str] = (),
    machine: str = "x86-64",
) -> bytes:
    """A library that is called as its file is.

    `hip` are targets of the bundle in it, or the target a code object is entered for and that it
    was really made for; `cuda` are `sm_120` for cubins and `compute_120` for PTX.
    """
    sections = {}
    if hip:
        made = hip if isinstance(hip, Mapping) else {target: target for target in hip}
        objects = {hip_id(entry): make_code_object(target) for entry, target in made.items()}
        sections[".hip_fatbin"] = make_bundle(objects)
    if cuda:
        sections[".nv_fatbin"] = make_fatbin(
            Ptx(arch.replace("compute_", "sm_")) if arch.startswith("compute_") else Cubin(arch)
            for arch in cuda
        )
    name = PurePosixPath(path).name
    return make_elf(sections, soname=name, needed=(C, *needed), machine=MACHINES[machine])


def module(
    path: str, info: Mapping[str, str | Sequence[str]], release: str, machine: str = "x86-64"
) -> bytes:
    """A kernel module, packed as the name of its file says."""
    content = make_module(info, release=release)
    content = content[:18] + MACHINES[machine].to_bytes(2, "little") + content[20:]
    return lzma.compress(content) if path.endswith(".xz") else content


def content_of(path: str, step: Mapping[str, Any], kernel: str) -> bytes:
    """What the step `elf: PATH` of a fault writes there; `kernel` is the release that is booted.

    as: program, library (needed, hip, cuda, machine), module (info, release, machine), or
    `code object` (target).
    """
    match step.get("as", "library"):
        case "program":
            return program(*step.get("needed", ()))
        case "module":
            machine = step.get("machine", "x86-64")
            return module(path, step.get("info", {}), step.get("release", kernel), machine)
        case "code object":
            return make_code_object(step["target"])
    words = {key: step[key] for key in ("needed", "hip", "cuda", "machine") if key in step}
    return library(path, **words)
