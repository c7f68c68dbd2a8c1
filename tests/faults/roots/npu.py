# SPDX-License-Identifier: Apache-2.0
"""The small root of a Ryzen AI Max board: graphics by Vulkan, the NPU by amdxdna.  Fixtures."""

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

KERNEL = "7.2.6+deb14-amd64"
# Some of those that amdgpu lists for Strix Halo, of each part of the chip.
GRAPHICS = tuple(
    f"amdgpu/{name}.bin"
    for name in (
        "gc_11_5_1_imu", "gc_11_5_1_me", "gc_11_5_1_mec", "gc_11_5_1_mes1", "gc_11_5_1_mes_2",
        "gc_11_5_1_pfp", "gc_11_5_1_rlc", "psp_14_0_1_ta", "psp_14_0_1_toc", "sdma_6_1_1",
        "vcn_4_0_6", "dcn_3_5_1_dmcub", "vpe_6_1_1",
    )
)  # fmt: skip
NPU = ("amdnpu/17f0_11/npu.sbin", "amdnpu/17f0_11/npu_7.sbin")


def make_npu(tree: Tree) -> None:
    """made-npu, of the recipe ryzen-ai-max."""
    graphics = "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.xz"
    npu = "kernel/drivers/accel/amdxdna/amdxdna.ko.xz"
    core, more = f"{LIB}/libxrt_core.so.2", f"{LIB}/libxrt_driver_xdna.so.2"
    small = Small(
        name="npu",
        profile="ryzen-ai-max",
        kernel=KERNEL,
        modules={
            DRM: {"name": "drm"},
            graphics: claims("1002:1586", GRAPHICS),
            npu: claims("1022:17f0", NPU),
        },
        needs={graphics: [DRM], npu: [DRM]},
        firmware=(*GRAPHICS, *NPU),
        files={
            **vulkan("radeon"),
            **llama_cpp(),
            **libraries(f"{LIB}/libxrt_coreutil.so.2"),
            core: library(core, ["libxrt_coreutil.so.2"]),
            more: library(more, ["libxrt_core.so.2"]),
        },
        answers=LLAMA,
    )
    make_small(tree, small)
