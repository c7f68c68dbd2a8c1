# SPDX-License-Identifier: Apache-2.0
"""Cubins and PTX for NVIDIA GPUs, SPIR-V and native code for Intel's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from imagebuilder.image.proof import Finding
from imagebuilder.proof.code.cuda import cubin_target, serves
from imagebuilder.proof.code.prove import prove_code
from imagebuilder.proof.reading.code import CodeObject, Form
from imagebuilder.recipe.expectations import Code, Expectations
from tests.fixtures.elf import (
    INTELGT,
    Cubin,
    Ptx,
    make_cubin,
    make_elf,
    make_fatbin,
    make_intel_archive,
)
from tests.unit.proof.trees import facts, faults, make_tree, subject, warnings

PATH = "/usr/lib/libggml-cuda.so"
SYCL = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64"
SPIRV = b"\x03\x02\x23\x07" + bytes(60)


def proved(
    tmp_path: Path, files: Mapping[str, bytes], target: str, accept: str = "native"
) -> list[Finding]:
    """What the question finds; the first file is what carries the code."""
    root = make_tree(tmp_path, files)
    code = Code((next(iter(files)),), target, accept)
    return list(prove_code(subject(root, expectations=Expectations(code=(code,)))))


def library(*entries: Cubin | Ptx) -> dict[str, bytes]:
    """A library with two fat binaries of these entries."""
    return {PATH: make_elf({".nv_fatbin": make_fatbin(entries) * 2}, soname="libggml-cuda.so")}


@pytest.mark.parametrize(
    ("made", "form", "target", "how"),
    [
        ("sm_120", Form.NATIVE, "sm_120", Form.NATIVE),
        ("sm_80", Form.NATIVE, "sm_89", Form.NATIVE),
        ("sm_89", Form.NATIVE, "sm_86", None),
        ("sm_90", Form.NATIVE, "sm_120", None),
        ("sm_100", Form.NATIVE, "sm_120", None),
        ("sm_90a", Form.NATIVE, "sm_90", Form.NATIVE),
        ("sm_120a", Form.NATIVE, "sm_121", None),
        ("sm_120f", Form.NATIVE, "sm_121", Form.NATIVE),
        ("sm_87", Form.NATIVE, "sm_89", None),
        ("sm_90", Form.FORWARD, "sm_120", Form.FORWARD),
        ("sm_90a", Form.FORWARD, "sm_120", None),
        ("sm_100f", Form.FORWARD, "sm_120", None),
        ("sm_120", Form.FORWARD, "sm_89", None),
        ("sm_120", Form.UNLINKED, "sm_120", None),
    ],
)
def test_what_runs_where(made: str, form: Form, target: str, how: Form | None) -> None:
    assert serves(CodeObject(made, form, 1, ".nv_fatbin"), target) is how


def test_native_code(tmp_path: Path) -> None:
    found = proved(tmp_path, library(Cubin("sm_90"), Cubin("sm_120"), Ptx("sm_120")), "sm_120")
    assert facts(found) == ["libggml-cuda.so has code for sm_120: 2 cubins, 8 KiB"]
    assert found[0].evidence[0].section == ".nv_fatbin"
    assert found[0].evidence[0].said == "sm_90 sm_120 compute_120"


def test_no_code_for_sm_120(tmp_path: Path) -> None:
    found = proved(tmp_path, library(Cubin("sm_80"), Cubin("sm_90a"), Ptx("sm_90a")), "sm_120")
    assert faults(found) == [
        "no code for sm_120: libggml-cuda.so has sm_80 sm_90a compute_90a",
    ]
    assert "12.8" in found[0].hint


@pytest.mark.parametrize("packed", [True, False])
def test_ptx_only(packed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    files = library(Cubin("sm_89"), Ptx("sm_90", packed))
    said = "PTX only: libggml-cuda.so has no native code for sm_120"
    assert faults(proved(tmp_path, files, "sm_120")) == [said]
    found = proved(tmp_path, files, "sm_120", "forward")
    assert faults(found) == ["PTX cannot be compiled for sm_120: no libnvidia-ptxjitcompiler.so"]
    assert warnings(found)[0].startswith(said)
    files["/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1"] = make_elf()
    found = proved(tmp_path, files, "sm_120", "forward")
    assert (faults(found), len(warnings(found))) == ([], 1)


def test_cubins_before_device_linking_are_no_code(tmp_path: Path) -> None:
    unlinked = make_fatbin([Cubin("sm_120"), Ptx("sm_120")])
    linked = make_fatbin([Cubin("sm_90")])
    both = make_elf({"__nv_relfatbin": unlinked, ".nv_fatbin": linked})
    assert faults(proved(tmp_path, {PATH: both}, "sm_120"))[0].startswith("PTX only: ")


def test_zeroed_and_lying_cubins(tmp_path: Path) -> None:
    whole = make_elf({".nv_fatbin": make_fatbin([Cubin("sm_90"), Cubin("sm_120")])})
    cubin = make_cubin("sm_120")
    zeroed = whole.replace(cubin, bytes(len(cubin)))
    assert "contains only zeros" in faults(proved(tmp_path, {PATH: zeroed}, "sm_120"))[0]
    lying = whole.replace(cubin, make_cubin("sm_100"))
    assert "is for sm_100 (e_flags)" in faults(proved(tmp_path, {PATH: lying}, "sm_120"))[0]


def test_a_library_for_the_processor(tmp_path: Path) -> None:
    (fault,) = faults(proved(tmp_path, {PATH: make_elf(needed=["libc.so.6"])}, "sm_120"))
    assert fault == f"no code for sm_120: nothing in {PATH} carries a cubin"


@pytest.mark.parametrize("arch", ["sm_50", "sm_89", "sm_90a", "sm_100", "sm_120a"])
def test_cubins_by_file(arch: str, tmp_path: Path) -> None:
    cubin = make_cubin(arch)
    assert cubin_target(cubin[:64]) == arch
    found = proved(tmp_path, {"/opt/x/kernel.cubin": cubin}, arch.rstrip("a"))
    assert facts(found) == [f"1 kernel files for {arch.rstrip('a')}, 0 MiB"]


# --- Intel ----------------------------------------------------------------------------------------


def test_native_code_for_intel(tmp_path: Path) -> None:
    archive = make_intel_archive(["12.55.8", "12.60.7"], spirv=SPIRV)
    files = {PATH: make_elf({f"{SYCL}_gen": zstandard.compress(archive), SYCL: SPIRV})}
    found = proved(tmp_path, files, "dg2")
    assert facts(found) == ["libggml-cuda.so has code for dg2: 1 module, 4 KiB"]
    assert found[0].evidence[0].said == "12.55.8 12.60.7 SPIR-V"


def test_spirv_needs_the_compiler(tmp_path: Path) -> None:
    files = {PATH: make_elf({SYCL: zstandard.compress(SPIRV)})}
    assert faults(proved(tmp_path, files, "dg2"))[0].startswith("SPIR-V only: ")
    (fault,) = faults(proved(tmp_path, files, "dg2", "forward"))
    assert fault == "SPIR-V cannot be compiled for dg2: no libigc.so"
    files["/usr/lib/x86_64-linux-gnu/libigc.so.2"] = make_elf(soname="libigc.so.2")
    assert facts(proved(tmp_path, files, "dg2", "forward")) == [
        "libggml-cuda.so has SPIR-V, which the driver compiles for dg2",
        "libigc.so.2 compiles SPIR-V for dg2",
    ]


def test_a_library_without_code_for_intel(tmp_path: Path) -> None:
    (fault,) = faults(proved(tmp_path, {PATH: make_elf()}, "dg2", "forward"))
    assert fault == f"no code for dg2: nothing in {PATH} carries a module"


def test_a_native_module_by_file(tmp_path: Path) -> None:
    files = {"/opt/x/kernel.bin": make_elf({".text": b"x"}, machine=INTELGT, kind=1)}
    assert len(faults(proved(tmp_path, files, "dg2"))) == 1, "which GPU it is for, it does not say"
