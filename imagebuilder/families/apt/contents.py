# SPDX-License-Identifier: Apache-2.0
"""What packages of Debian and Ubuntu contain: a kernel, its modules, firmware, libraries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from imagebuilder.families.kernel import release_among
from imagebuilder.lock.types import LockedPackage
from imagebuilder.workspace import Workspace

# Its paths in Debian's kernel packages: up to trixie, and since Linux 7 in forky.
# Packages of Debian and Ubuntu with files that are built together with a kernel.
WITH_KERNEL = re.compile(r"linux-image-(?:unsigned-)?(\d.*)")
OF_KERNEL = re.compile(r"linux-(?:image|modules)(?:-unsigned|-extra)?-(.+)")
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


def find_kernel_release(workspace: Workspace, kernel: str) -> str:
    """The release (`uname -r`) of the one kernel that the package `kernel` installs.

    Follows the package's metadata: a metapackage depends, directly or indirectly, on the package
    that ships the kernel itself.  Never by file order (kairos #2522, warewulf #2199).  Raises
    InputError.
    """
    form = "${Package} ${Depends}\\n"
    shown = workspace.ask(["dpkg-query", "--show", f"--showformat={form}", "linux-*"]).stdout
    depends = {words[0]: words[1:] for words in map(str.split, shown.splitlines())}
    listed = workspace.ask(["dpkg", "-L", *brought_by(kernel, depends)], check=False).stdout
    return release_among(listed, kernel)


def brought_by(package: str, depends: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """`package` and its direct and indirect dependencies, as far as they are in `depends`."""
    wanted, seen = [package], {package: None}
    while wanted:
        new = [name for name in depends.get(wanted.pop(), ()) if name in depends]
        wanted.extend(name for name in new if name not in seen)
        seen.update(dict.fromkeys(new))
    return tuple(seen)


def is_kernel_package(package: str, release: str) -> bool:
    match = OF_KERNEL.fullmatch(package)
    return match is not None and match[1] == release


def release_of(package: LockedPackage) -> str:
    """The release of the kernel that a package has, "" if it has none."""
    match = WITH_KERNEL.fullmatch(package.name)
    return match[1] if match else ""


def package_with(path: str) -> str:
    """The package with what a root may lack, for a hint; "" if unknown."""
    place = PurePosixPath(path)
    if place.is_relative_to(FOLDER):
        return FIRMWARE.get(place.relative_to(FOLDER).parts[0], "")
    found = (who for begin, who in LIBRARIES.items() if place.name.startswith(begin))
    return next(found, "")
