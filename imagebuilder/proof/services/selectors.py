# SPDX-License-Identifier: Apache-2.0
"""Variables by which a runtime hides devices from a program, or makes them something else.

Data: one row a variable, with the backends that read it, the values that hide every device, and
where that is documented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A list that begins with no device: of NVIDIA's and AMD's, only those before the first wrong index
# are seen.
NONE_FIRST = r"\s*(-\d.*|none|None|NoDevFiles|[^\w\s-].*)"
NUMBERS = r"\s*\d+(\s*,\s*\d+)*\s*"


@dataclass(frozen=True)
class Selector:
    """A variable that chooses devices.

    `hides` is a regular expression for the values that leave none; `fewer` one for those that may
    leave none on a node with fewer devices than the author had.
    """

    variable: str
    backends: frozenset[str]
    hides: str
    source: str
    fewer: str = r"(?!\s*0\b).*\d.*"

    def hides_all(self, value: str) -> bool:
        return re.fullmatch(self.hides, value) is not None

    def may_hide(self, value: str) -> bool:
        return re.fullmatch(self.fewer, value) is not None


HIP, CUDA, VULKAN, SYCL = (frozenset({name}) for name in ("hip", "cuda", "vulkan", "sycl"))
ROCM = "rocm.docs.amd.com, GPU isolation techniques"
NVIDIA = "CUDA C++ Programming Guide, CUDA environment variables"
ONEAPI = "intel/llvm, sycl/doc/EnvironmentVariables.md"
LOADER = "KhronosGroup/Vulkan-Loader, docs/LoaderInterfaceArchitecture.md"

SELECTORS: tuple[Selector, ...] = (
    Selector("HIP_VISIBLE_DEVICES", HIP, NONE_FIRST, ROCM),
    Selector("ROCR_VISIBLE_DEVICES", HIP, NONE_FIRST, ROCM),
    Selector("GPU_DEVICE_ORDINAL", HIP, NONE_FIRST, ROCM),
    Selector("CUDA_VISIBLE_DEVICES", HIP, NONE_FIRST, ROCM),
    # To CUDA an empty list is a list.
    Selector("CUDA_VISIBLE_DEVICES", CUDA, rf"\s*|{NONE_FIRST}", NVIDIA),
    Selector(
        "GGML_VK_VISIBLE_DEVICES",
        VULKAN,
        r"(?!\s*\d).*",
        "ggml-org/llama.cpp, ggml/src/ggml-vulkan/ggml-vulkan.cpp",
    ),
    Selector(
        "VK_LOADER_DRIVERS_DISABLE", VULKAN, r".*(^|,)(\*|~all~)(,|$).*", LOADER, fewer="(?!)"
    ),
    Selector(
        "ONEAPI_DEVICE_SELECTOR",
        SYCL,
        r"(?i)(?!.*(gpu|\*(;|$)|:\d)).*|.*!\s*(\*|level_zero):(\*|gpu).*",
        ONEAPI,
        fewer=r"[^;]*:[1-9]\d*.*",
    ),
    Selector("ZE_AFFINITY_MASK", SYCL, r"-.*|[^\d].*", "oneAPI Level Zero, Programming Guide"),
    Selector("SYCL_DEVICE_FILTER", SYCL, r"(?i)(?!.*(gpu|\*)).*", ONEAPI, fewer="(?!)"),
)
# Lists of files by which a loader finds its drivers, in place of what the image has.
DRIVER_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
SOFTWARE = re.compile(r"lvp|lavapipe|swiftshader|llvmpipe", re.IGNORECASE)
# It makes a Radeon pass for another: MAJOR.MINOR.STEPPING of a target, the stepping hexadecimal.
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
TENSILE = "ROCBLAS_TENSILE_LIBPATH"


def target_of(version: str) -> str:
    """`11.0.0` -> `gfx1100`; "" for what is no version."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version.strip())
    return f"gfx{found[1]}{int(found[2]):x}{int(found[3]):x}" if found else ""
