# SPDX-License-Identifier: Apache-2.0
"""Code objects for AMD GPUs: bundles plain, compressed and slimmed; kernels by file."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.proof.code.prove import prove_code
from imagebuilder.proof.facts import FileFacts
from imagebuilder.proof.reading.code import CodeFile, CodeObject, Form, in_order
from imagebuilder.proof.reading.modules import ModuleReader
from imagebuilder.proof.subject import RootReader
from imagebuilder.recipe.expectations import Code, Expectations
from tests.fixtures.elf import (
    PAGE,
    compress_bundle,
    hip_id,
    make_bundle,
    make_code_object,
    make_elf,
    make_hip_bundles,
)
from tests.unit.proof.trees import facts, faults, make_tree, subject, warnings

HIP = "/usr/lib/libggml-hip.so"
FOLDER = "/usr/lib/rocblas/4.4.1/library"


def bundle(*targets: str) -> bytes:
    """A bundle with code objects for these targets."""
    return make_bundle({hip_id(target): make_code_object(target) for target in targets})


def library(*bundles: bytes) -> bytes:
    """A library with these bundles, without wrappers that point at them."""
    return make_elf({".hip_fatbin": make_hip_bundles(*bundles)}, soname="libggml-hip.so")


def proved(
    tmp_path: Path, files: Mapping[str, bytes], *codes: Code, target: str = "gfx1102"
) -> list[Finding]:
    """What the question finds in a tree with these files."""
    root = make_tree(tmp_path, files)
    expected = codes or (Code((HIP,), target),)
    return list(prove_code(subject(root, expectations=Expectations(code=expected))))


def test_a_profile_that_declares_nothing_is_not_asked(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {HIP: library(bundle("gfx803"))})
    found = prove_code(subject(root, hardware=[("1002:7480", "Card", "gfx1102")]))
    assert list(found) == []


def test_code_for_the_target(tmp_path: Path) -> None:
    two = bundle("gfx1030", "gfx1102")
    (fact,) = proved(tmp_path, {HIP: library(two, two)})
    assert facts([fact]) == ["libggml-hip.so has code for gfx1102: 2 code objects, 9 KiB"]
    (evidence,) = fact.evidence
    assert (evidence.path, evidence.section) == (HIP, ".hip_fatbin")
    assert evidence.said == "gfx1030 gfx1102"


def test_a_file_that_is_known_is_not_read(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {HIP: library(bundle("gfx803"))})
    known = CodeFile(HIP, (CodeObject("gfx1102", Form.NATIVE, 4096, ".hip_fatbin"),), whole=False)
    code = FileFacts(root, lambda: {"gfx1102": {HIP: known}})
    codes = tuple(Code((HIP,), target) for target in ("gfx1102", "gfx803"))
    asked = subject(root, expectations=Expectations(code=codes))
    found = list(prove_code(replace(asked, reading=RootReader(ModuleReader(root), code))))
    assert facts(found) == [
        "libggml-hip.so has code for gfx1102: 1 code object, 4 KiB",
        "libggml-hip.so has code for gfx803: 1 code object, 4 KiB",
    ]
    assert code.kept(bool).keys() == {"gfx1102", "gfx803"}


def test_no_code_for_the_target_says_what_there_is(tmp_path: Path) -> None:
    found = proved(
        tmp_path, {HIP: library(bundle("gfx803", "gfx1030", "gfx90a"))}, target="gfx1151"
    )
    assert faults(found) == ["no code for gfx1151: libggml-hip.so has gfx803 gfx90a gfx1030"]
    assert "Vulkan" in found[0].hint


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_compressed_bundles(version: int, method: str, tmp_path: Path) -> None:
    packed = compress_bundle(bundle("gfx1030", "gfx1102"), version=version, method=method)
    assert faults(proved(tmp_path, {HIP: library(packed)})) == []
    found = proved(tmp_path, {HIP: library(packed, packed)}, target="gfx1151")
    assert faults(found) == ["no code for gfx1151: libggml-hip.so has gfx1030 gfx1102"]


def test_a_compressed_bundle_that_is_broken(tmp_path: Path) -> None:
    packed = bytearray(compress_bundle(bundle("gfx1102")))
    packed[30:60] = bytes(30)
    assert "is damaged" in faults(proved(tmp_path, {HIP: library(bytes(packed))}))[0]


def test_code_for_the_family_will_do(tmp_path: Path) -> None:
    family = {HIP: library(bundle("gfx11-generic"))}
    assert faults(proved(tmp_path, family)) == []
    assert faults(proved(tmp_path, family, target="gfx1151")) == []
    assert len(faults(proved(tmp_path, family, target="gfx1030"))) == 1


def test_features_are_no_other_target(tmp_path: Path) -> None:
    whole = make_bundle({hip_id("gfx90a:xnack-"): make_code_object("gfx90a")})
    assert faults(proved(tmp_path, {HIP: library(whole)}, target="gfx90a")) == []


def test_a_slimmed_library_with_holes(tmp_path: Path) -> None:
    two = make_hip_bundles(bundle("gfx1030", "gfx1102"))
    start = PAGE  # of gfx1030's code object, which is of two pages
    slim = make_elf({".hip_fatbin": two}, holes={".hip_fatbin": [(start, start + 2 * PAGE)]})
    assert len(slim) < len(make_elf({".hip_fatbin": two}))
    found = proved(tmp_path, {HIP: slim})
    assert faults(found) == []
    assert found[0].evidence[0].said == "gfx1102"


def test_slimmed_too_much(tmp_path: Path) -> None:
    two = make_hip_bundles(bundle("gfx1030", "gfx1102"))
    (start,) = [two.index(make_code_object("gfx1102")) // PAGE * PAGE]
    slim = make_elf({".hip_fatbin": two}, holes={".hip_fatbin": [(start, start + PAGE)]})
    (fault,) = faults(proved(tmp_path, {HIP: slim}))
    assert fault == (
        "code for gfx1102 in libggml-hip.so is damaged: 1 of 1 code objects, "
        "the first of which is not in the file"
    )


def test_zeroed_code_objects(tmp_path: Path) -> None:
    whole = make_hip_bundles(bundle("gfx1030", "gfx1102"), bundle("gfx1030", "gfx1102"))
    code = make_code_object("gfx1102")
    at = whole.rindex(code)
    zeroed = whole[:at] + bytes(len(code)) + whole[at + len(code) :]
    found = proved(tmp_path, {HIP: make_elf({".hip_fatbin": zeroed})})
    assert "1 of 2 code objects, the first of which contains only zeros" in faults(found)[0]
    assert found[0].evidence[0].symbol == "bundle 1"


def test_a_code_object_with_a_hole(tmp_path: Path) -> None:
    code = make_code_object("gfx1102", 400_000)
    hollow = code[:200_000] + bytes(140_000) + code[340_000:]
    for content, said in ((code, []), (hollow, ["is partly zeros"])):
        whole = make_bundle({hip_id("gfx1102"): content})
        found = faults(proved(tmp_path, {HIP: library(whole)}))
        assert [fault.rpartition("which ")[2] for fault in found] == said


def test_an_id_that_lies(tmp_path: Path) -> None:
    wrong = make_bundle({hip_id("gfx1102"): make_code_object("gfx1030")})
    (fault,) = faults(proved(tmp_path, {HIP: library(wrong)}))
    assert "is for gfx1030 (EF_AMDGPU_MACH)" in fault


def test_a_library_for_the_processor(tmp_path: Path) -> None:
    (fault,) = faults(proved(tmp_path, {HIP: make_elf(needed=["libc.so.6"])}))
    assert fault == f"no code for gfx1102: nothing in {HIP} carries a code object"


def test_a_glob_without_a_file(tmp_path: Path) -> None:
    (fault,) = faults(proved(tmp_path, {}))
    assert fault == f"no code for gfx1102: no file matches {HIP}"


def test_wrappers_lead_to_the_bundles(tmp_path: Path) -> None:
    # Found by its wrapper, though what is before it looks like a bundle's beginning.
    decoy = b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 100
    fatbin = make_hip_bundles(decoy, bundle("gfx1102"))
    place = PAGE  # the first section's address
    wrapper = struct.pack("<IIQQ", 0x48495046, 1, 0, 0)
    address = place + -(-len(fatbin) // PAGE) * PAGE
    relocation = struct.pack("<QQq", address + 8, 8, place + PAGE)
    elf = make_elf({".hip_fatbin": fatbin, ".hipFatBinSegment": wrapper, ".rela.dyn": relocation})
    (fact,) = proved(tmp_path, {HIP: elf})
    assert facts([fact]) == ["libggml-hip.so has code for gfx1102: 1 code object, 4 KiB"]


# --- kernels by file ------------------------------------------------------------------------------

GEMM, FALLBACK = "TensileLibrary_Type_HH_l", "TensileLibrary_Type_SS_l_fallback"


def index(*names: str) -> bytes:
    """An index as MessagePack has it: strings of up to 255 bytes."""
    return b"\x82\xa5value".join(
        [b"", *(bytes([0xD9, len(name)]) + name.encode() for name in names)]
    )


def kernels(target: str = "gfx1102") -> dict[str, bytes]:
    """A folder of kernels as rocBLAS has it."""
    code = make_code_object(target)
    return {
        f"{FOLDER}/TensileLibrary_lazy_{target}.dat": index(f"{GEMM}_{target}", FALLBACK),
        f"{FOLDER}/{GEMM}_{target}.dat": b"solutions",
        f"{FOLDER}/{GEMM}_{target}.co": code,
        f"{FOLDER}/{FALLBACK}.dat": b"solutions",
        f"{FOLDER}/{FALLBACK}_{target}.hsaco": code,
        f"{FOLDER}/Kernels.so-000-{target}.hsaco": code,
    }


BY_FILE = Code((f"{FOLDER}/*gfx1102*",), "gfx1102")


def test_all_kernels_are_there(tmp_path: Path) -> None:
    found = proved(tmp_path, kernels() | kernels("gfx1030"), BY_FILE)
    assert (faults(found), warnings(found)) == ([], [])
    assert facts(found) == [
        "3 kernel files for gfx1102, 0 MiB",
        "all 2 libraries that TensileLibrary_lazy_gfx1102.dat names are present",
    ]


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (f"{GEMM}_gfx1102.co", f"{GEMM}_gfx1102.co"),
        (f"{GEMM}_gfx1102.dat", f"{GEMM}_gfx1102.dat"),
        (f"{FALLBACK}.dat", f"{FALLBACK}.dat"),
        (f"{FALLBACK}_gfx1102.hsaco", f"{FALLBACK}_gfx1102.hsaco"),
        ("TensileLibrary_lazy_gfx1102.dat", "TensileLibrary_lazy_gfx1102.dat"),
    ],
)
def test_removed_kernels(gone: str, named: str, tmp_path: Path) -> None:
    files = kernels() | kernels("gfx1030")
    del files[f"{FOLDER}/{gone}"]
    (fault,) = faults(proved(tmp_path, files, BY_FILE))
    assert fault.startswith("kernels for gfx1102 were removed: 1 of the ")
    assert fault.endswith(named)


def test_kernels_for_other_targets_only(tmp_path: Path) -> None:
    found = proved(tmp_path, kernels("gfx1030"), BY_FILE)
    assert faults(found) == [f"no code for gfx1102: {FOLDER} has kernels for gfx1030"]


def test_a_kernel_file_that_is_for_another_target(tmp_path: Path) -> None:
    files = kernels() | {f"{FOLDER}/{GEMM}_gfx1102.co": make_code_object("gfx1030")}
    (fault,) = faults(proved(tmp_path, files, BY_FILE))
    assert fault == f"{GEMM}_gfx1102.co is not code for gfx1102: it is for gfx1030"


def test_kernel_files_that_are_bundles(tmp_path: Path) -> None:
    files = kernels() | {f"{FOLDER}/{GEMM}_gfx1102.co": compress_bundle(bundle("gfx1102"))}
    assert faults(proved(tmp_path, files, BY_FILE)) == []


def test_targets_are_listed_as_people_do() -> None:
    given = {"gfx1102", "gfx90a", "gfx803", "gfx908", "gfx11-generic", "gfx1030"}
    assert in_order(given)[:3] == ["gfx11-generic", "gfx803", "gfx908"]
    assert in_order(given)[3:] == ["gfx90a", "gfx1030", "gfx1102"]
    assert in_order({"sm_120", "sm_80", "sm_90a"}) == ["sm_80", "sm_90a", "sm_120"]
