# SPDX-License-Identifier: Apache-2.0
"""The packages of Debian or Ubuntu that contain what a root may lack, for hints."""

from __future__ import annotations

from pathlib import PurePosixPath

FOLDER = "/usr/lib/firmware"
# By folder below it; Ubuntu has all in linux-firmware.
FIRMWARE = {
    "amdgpu": "firmware-amd-graphics",
    "amdnpu": "firmware-amd-graphics",
    "i915": "firmware-intel-graphics (firmware-misc-nonfree up to bookworm)",
    "xe": "firmware-intel-graphics",
    "nvidia": "the firmware package of the driver's own version (firmware-nvidia-gsp, or the "
    "vendor's nvidia-firmware)",
}
# By prefix of the library's name.
LIBRARIES = {
    "libcuda.so": "the NVIDIA driver's libraries (libcuda1)",
    "libnvidia-ml.so": "the NVIDIA driver's libraries (libnvidia-ml1)",
    "libamdhip64.so": "the HIP runtime (libamdhip64)",
    "libhipblas.so": "hipBLAS (libhipblas)",
    "librocblas.so": "rocBLAS (librocblas)",
    "libvulkan.so": "the Vulkan loader (libvulkan1)",
    "libze_loader.so": "the Level Zero loader (libze1)",
    "libOpenCL.so": "the OpenCL loader (ocl-icd-libopencl1)",
    "libcublas.so": "cuBLAS (nvidia-cublas-cu12, libcublas12)",
    "libcudart.so": "the CUDA runtime (nvidia-cuda-runtime-cu12, libcudart12)",
}


def package_with(path: str) -> str:
    place = PurePosixPath(path)
    if place.is_relative_to(FOLDER):
        return FIRMWARE.get(place.relative_to(FOLDER).parts[0], "")
    found = (who for begin, who in LIBRARIES.items() if place.name.startswith(begin))
    return next(found, "")
