# SPDX-License-Identifier: Apache-2.0
"""The small root of an Arc A770: i915, Level Zero, OpenCL and llama.cpp by Vulkan.  Fixtures."""

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
FIRMWARE = ("i915/dg2_guc_70.bin", "i915/dg2_huc_gsc.bin", "i915/dg2_dmc_ver2_08.bin")
OPENCL = f"{LIB}/intel-opencl/libigdrcl.so"


def make_intel(tree: Tree) -> None:
    """made-intel, of the recipe a770."""
    driver = "kernel/drivers/gpu/drm/i915/i915.ko.xz"
    level_zero = f"{LIB}/libze_intel_gpu.so.1"
    names = ("libze_loader.so.1", "libOpenCL.so.1", "libigc.so.2", "libigdfcl.so.2", "libocloc.so",
             "libigdgmm.so.12")  # fmt: skip
    small = Small(
        name="intel",
        profile="a770",
        kernel=KERNEL,
        modules={DRM: {"name": "drm"}, driver: claims("8086:56a0", FIRMWARE)},
        needs={driver: [DRM]},
        firmware=FIRMWARE,
        files={
            **vulkan("intel"),
            **llama_cpp(),
            **libraries(*(f"{LIB}/{name}" for name in names)),
            level_zero: library(level_zero, ["libigdgmm.so.12"]),
            OPENCL: library(OPENCL, ["libigdgmm.so.12"]),
            "/etc/OpenCL/vendors/intel.icd": f"{OPENCL}\n",
        },
        answers=LLAMA,
    )
    make_small(tree, small)
