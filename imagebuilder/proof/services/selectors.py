# SPDX-License-Identifier: Apache-2.0
"""Variables that make a runtime hide devices from a program or treat them as others.

Data: a row per variable, with the backends that read it, the values that hide every device, and
where that is documented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from imagebuilder.proof.reading.texts import whole

# A list whose first entry is not a device: NVIDIA and AMD ignore everything after an invalid index.
NONE_FIRST = r"\s*(-\d.*|none|None|NoDevFiles|[^\w\s-].*)"


@dataclass(frozen=True)
class Selector:
    """A variable that chooses devices.

    `hides` is a regular expression for the values that hide all devices; `fewer` one for those that
    may hide all on a node with fewer devices.
    """

    variable: str
    backends: frozenset[str]
    hides: str
    source: str
    fewer: str = r"(?!\s*0\b).*\d.*"


HIP, CUDA, VULKAN, SYCL, XRT = (
    frozenset({name}) for name in ("hip", "cuda", "vulkan", "sycl", "xrt")
)
ROCM = "rocm.docs.amd.com, GPU isolation techniques"
NVIDIA = "CUDA C++ Programming Guide, CUDA environment variables"
ONEAPI = "intel/llvm, sycl/doc/EnvironmentVariables.md"
LOADER = "KhronosGroup/Vulkan-Loader, docs/LoaderInterfaceArchitecture.md"
GGML_VULKAN = "ggml-org/llama.cpp, ggml/src/ggml-vulkan/ggml-vulkan.cpp"
GGML_SYCL = "ggml-org/llama.cpp, backend/SYCL.md"
MESA = "docs.mesa3d.org, Environment Variables"

SELECTORS: tuple[Selector, ...] = (
    Selector("HIP_VISIBLE_DEVICES", HIP, NONE_FIRST, ROCM),
    Selector("ROCR_VISIBLE_DEVICES", HIP, NONE_FIRST, ROCM),
    Selector("GPU_DEVICE_ORDINAL", HIP, NONE_FIRST, ROCM),
    Selector("CUDA_VISIBLE_DEVICES", HIP, NONE_FIRST, ROCM),
    # To CUDA an empty list is a list.
    Selector("CUDA_VISIBLE_DEVICES", CUDA, rf"\s*|{NONE_FIRST}", NVIDIA),
    Selector("GGML_VK_VISIBLE_DEVICES", VULKAN, r"(?!\s*\d).*", GGML_VULKAN),
    Selector("ONEAPI_DEVICE_SELECTOR", SYCL,
             r"(?i)[^;]*:[^;]*:.*|(?!.*(gpu|\*(;|$)|:\d)).*|.*!\s*(\*|level_zero):(\*|gpu).*",
             ONEAPI, fewer=r"[^;]*:[1-9]\d*.*"),
    Selector("ZE_AFFINITY_MASK", SYCL, r"-.*|[^\d].*", "oneAPI Level Zero, Programming Guide"),
    Selector("SYCL_DEVICE_FILTER", SYCL, r"(?i)(?!.*(gpu|\*)).*", ONEAPI, fewer="(?!)"),
)  # fmt: skip


@dataclass(frozen=True)
class Hindrance:
    """A variable for debugging, or one that disables a feature of a runtime.

    `value` is a regular expression for the values that do so; `what` is the consequence.  On chips
    of the architectures `without`, the runtime does not use that feature anyway.
    """

    variable: str
    value: str
    what: str
    source: str
    without: frozenset[str] = frozenset()


ANY = frozenset({"hip", "cuda", "vulkan", "sycl"})
# What the code asks is whether there is such a variable, whatever its value.
SET = r"(?s).*"
ON = r"(?!0*$)\d+|(?i:true|on|yes)"
WAITS = "the program waits for each kernel before it starts the next"
LAYERS = "a layer of the Vulkan loader checks every call"
# Architectures on which llama.cpp uses no cooperative matrices of Vulkan: NVIDIA's before Turing,
# AMD's before RDNA 3, Intel's before Xe2 (ggml_vk_khr_cooperative_matrix_support()).
NO_MATRIX = frozenset(
    ("Pascal", "Volta", "GCN 4", "GCN 5", "GCN 5.1", "RDNA", "RDNA 2", "Xe-LP", "Xe-LPG", "Xe-HPG")
)
MATRIX, SHADERS = "matrix units are not used", "shaders take a slower path"
HOST = "the model is in the machine's memory, and the card reads it over PCIe for every token"
PERCENT = "HIP uses only this percentage of the card's memory"
OVERFLOW = "what does not fit on the card goes to the machine's memory, and is read over PCIe"
HINDRANCES: tuple[tuple[frozenset[str], Hindrance], ...] = (
    (CUDA, Hindrance("CUDA_LAUNCH_BLOCKING", ON, WAITS, NVIDIA)),
    (HIP, Hindrance("CUDA_LAUNCH_BLOCKING", ON, WAITS, ROCM)),
    (HIP, Hindrance("HIP_LAUNCH_BLOCKING", ON, WAITS, ROCM)),
    (HIP, Hindrance("AMD_SERIALIZE_KERNEL", r"[1-3]", WAITS, ROCM)),
    (HIP, Hindrance("AMD_SERIALIZE_COPY", r"[1-3]", "the program waits for each copy", ROCM)),
    (HIP, Hindrance("AMD_LOG_LEVEL", r"[3-9]", "ROCm logs every call", ROCM)),
    (HIP, Hindrance("HSA_ENABLE_INTERRUPT", "0", "a processor core polls all the time", ROCM)),
    (HIP, Hindrance("HSA_CU_MASK", r".*\d.*", "part of the card's compute units is idle", ROCM)),
    (HIP, Hindrance("ROC_GLOBAL_CU_MASK", r".*\d.*", "part of the card is not used", ROCM)),
    # From 80 on it leaves room for others on purpose; the default is 100.
    (HIP, Hindrance("GPU_MAX_HEAP_SIZE", r"0*[1-7]?\d", PERCENT,
                    "rocm.docs.amd.com, HIP environment variables; ROCm/hip #3766")),
    (CUDA, Hindrance("CUDA_DISABLE_PTX_JIT", ON, "code that comes as PTX does not run", NVIDIA)),
    (CUDA, Hindrance("CUDA_FORCE_PTX_JIT", ON, "PTX is used instead of native code", NVIDIA)),
    (CUDA, Hindrance("NVIDIA_TF32_OVERRIDE", "0", "tensor cores do not compute TF32", NVIDIA)),
    (CUDA, Hindrance("PYTORCH_NO_CUDA_MEMORY_CACHING", ON, "the memory of tensors is not reused",
                     "PyTorch, CUDA environment variables")),
    (VULKAN, Hindrance("VK_INSTANCE_LAYERS", r".*(?i:validation|api_dump).*", LAYERS, LOADER)),
    (VULKAN, Hindrance("VK_LOADER_LAYERS_ENABLE", r".*(?i:validation|api_dump|\*).*", LAYERS,
                       LOADER)),
    (VULKAN, Hindrance("GGML_VK_DISABLE_COOPMAT", SET, MATRIX, GGML_VULKAN, NO_MATRIX)),
    (VULKAN, Hindrance("GGML_VK_DISABLE_COOPMAT2", SET, MATRIX, GGML_VULKAN)),
    (VULKAN, Hindrance("GGML_VK_DISABLE_F16", SET, SHADERS, GGML_VULKAN)),
    (VULKAN, Hindrance("GGML_VK_DISABLE_INTEGER_DOT_PRODUCT", SET, SHADERS, GGML_VULKAN)),
    (VULKAN, Hindrance("GGML_VK_DISABLE_FUSION", SET, SHADERS, GGML_VULKAN)),
    (VULKAN, Hindrance("GGML_VK_PERF_LOGGER", SET, "every operation is timed", GGML_VULKAN)),
    (VULKAN, Hindrance("RADV_DEBUG", r"(.*,)?(hang|syncshaders)(,.*)?", WAITS, MESA)),
    (CUDA, Hindrance("GGML_CUDA_DISABLE_GRAPHS", SET, "kernels are launched one by one",
                     "ggml-org/llama.cpp, ggml/src/ggml-cuda/ggml-cuda.cu")),
    (CUDA, Hindrance("CUDA_CACHE_DISABLE", ON, "code that comes as PTX is compiled at each start",
                     NVIDIA)),
    (SYCL, Hindrance("GGML_SYCL_DISABLE_OPT", ON, "kernels for Intel's cards are not used",
                     GGML_SYCL)),
    (SYCL, Hindrance("GGML_SYCL_DEBUG", ON, "every call is logged", GGML_SYCL)),
    (SYCL, Hindrance("UR_L0_SERIALIZE", "[23]", WAITS, ONEAPI)),
    (SYCL, Hindrance("ZE_ENABLE_VALIDATION_LAYER", ON, "every call is checked", ONEAPI)),
    (SYCL, Hindrance("SYCL_UR_TRACE", r"(?!0*$)-?\d+", "every call is logged", ONEAPI)),
    (ANY, Hindrance("VLLM_TRACE_FUNCTION", ON, "vLLM logs every function call",
                    "docs.vllm.ai, Troubleshooting")),
    (ANY, Hindrance("LD_DEBUG", ".+", "the loader logs what it looks for", "ld.so(8)")),
)  # fmt: skip
# Variables for graphics that share the machine's memory, which slow down a card with its own.
SHARED: tuple[tuple[frozenset[str], Hindrance], ...] = (
    (HIP, Hindrance("GGML_CUDA_ENABLE_UNIFIED_MEMORY", SET, HOST,
                    "ggml-org/llama.cpp, build.md, HIP")),
    (CUDA, Hindrance("GGML_CUDA_ENABLE_UNIFIED_MEMORY", SET, OVERFLOW,
                     "ggml-org/llama.cpp, build.md, Unified Memory")),
    (VULKAN, Hindrance("GGML_VK_PREFER_HOST_MEMORY", SET, HOST,
                       f"{GGML_VULKAN}; ggml-org/llama.cpp #11592")),
    (VULKAN, Hindrance("GGML_VK_ALLOW_SYSMEM_FALLBACK", SET, OVERFLOW, GGML_VULKAN)),
)  # fmt: skip
# Variables with which a runtime replaces the device by one that it makes up.
EMULATIONS: tuple[tuple[frozenset[str], Hindrance], ...] = (
    (XRT, Hindrance("XCL_EMULATION_MODE", SET, "XRT loads an emulation, not the NPU's driver",
                    "Xilinx/XRT, src/runtime_src/core/common/module_loader.cpp")),
    (VULKAN, Hindrance("RADV_FORCE_FAMILY", ".+", "RADV only compiles shaders, and runs none",
                       MESA)),
)  # fmt: skip
# Overrides the target of a Radeon: MAJOR.MINOR.STEPPING, the stepping hexadecimal.
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
TENSILE = "ROCBLAS_TENSILE_LIBPATH"


def target_of(version: str) -> str:
    """`11.0.0` -> `gfx1100`; "" for an invalid version."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version.strip())
    return f"gfx{found[1]}{whole(found[2]):x}{whole(found[3]):x}" if found else ""
