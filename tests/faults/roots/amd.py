# SPDX-License-Identifier: Apache-2.0
"""The small root of a Radeon RX 7600 XT: amdgpu, its firmware, ROCm and llama.cpp.  Fixtures."""

from __future__ import annotations

from imagebuilder.tree import Tree
from tests.faults.elf import library
from tests.faults.roots.shipped import (
    DRM,
    LIB,
    LLAMA,
    Small,
    claims,
    libraries,
    llama_cpp,
    make_small,
    vulkan,
)
from tests.fixtures.elf import make_code_object
from tests.unit.proof.trees import Content

TARGET = "gfx1102"
KERNEL = "7.2.6+deb14-amd64"
# Some of those that amdgpu lists for Navi 33, of each part of the chip.
FIRMWARE = tuple(
    f"amdgpu/{name}.bin"
    for name in (
        "gc_11_0_2_imu", "gc_11_0_2_me", "gc_11_0_2_mec", "gc_11_0_2_mes", "gc_11_0_2_mes1",
        "gc_11_0_2_mes_2", "gc_11_0_2_pfp", "gc_11_0_2_rlc", "psp_13_0_7_sos", "psp_13_0_7_ta",
        "sdma_6_0_2", "vcn_4_0_4", "dcn_3_2_1_dmcub", "smu_13_0_7",
    )
)  # fmt: skip
TENSILE = f"{LIB}/rocblas/4.4.1/library"
KINDS = ("Type_HH_Contraction_l_Ailk_Bjlk_Cijk_Dijk", "Type_SS_Contraction_l_Alik_Bljk_Cijk_Dijk")


def tensile() -> dict[str, Content]:
    """rocBLAS's folder of kernels: the list of libraries, solutions, and kernels by file."""
    names = [f"TensileLibrary_{kind}_{TARGET}" for kind in KINDS]
    names += [f"TensileLibrary_{kind}_fallback" for kind in KINDS]
    # MessagePack: an array of strings.
    listed = bytes([0x90 | len(names)])
    listed += b"".join(bytes([0xD9, len(name)]) + name.encode() for name in names)
    code = make_code_object(TARGET)
    found: dict[str, Content] = {
        f"{TENSILE}/TensileLibrary_lazy_{TARGET}.dat": listed,
        f"{TENSILE}/Kernels.so-000-{TARGET}.hsaco": code,
    }
    for name in names:
        found[f"{TENSILE}/{name}.dat"] = b"\x90"
        kernels = f"{name}_{TARGET}.hsaco" if name.endswith("fallback") else f"{name}.co"
        found[f"{TENSILE}/{kernels}"] = code
    return found


def rocm() -> dict[str, Content]:
    """The HIP runtime, rocBLAS, hipBLAS, and llama.cpp's plugin for them."""
    runtime, blas, hipblas = (
        f"{LIB}/{n}" for n in ("libamdhip64.so.6", "librocblas.so.4", "libhipblas.so.2")
    )
    plugin = f"{LIB}/ggml/backends0/libggml-hip.so"
    return {
        **libraries(runtime),
        blas: library(blas, ["libamdhip64.so.6"], hip=[TARGET]),
        hipblas: library(hipblas, ["librocblas.so.4"]),
        plugin: library(plugin, ["libhipblas.so.2", "libamdhip64.so.6"], hip=["gfx1030", TARGET]),
    }


def make_amd(tree: Tree) -> None:
    """made-amd, of the recipe rx7600xt."""
    driver = "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.xz"
    small = Small(
        name="amd",
        profile="rx7600xt",
        kernel=KERNEL,
        modules={DRM: {"name": "drm"}, driver: claims("1002:7480", FIRMWARE)},
        needs={driver: [DRM]},
        firmware=FIRMWARE,
        files={**vulkan("radeon"), **llama_cpp(), **rocm(), **tensile()},
        answers=LLAMA,
    )
    make_small(tree, small)
