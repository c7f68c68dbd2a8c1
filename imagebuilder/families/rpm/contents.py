# SPDX-License-Identifier: Apache-2.0
"""What packages of Enterprise Linux contain: a kernel, its modules, firmware, libraries.

    kernel        requires kernel-core-uname-r = RELEASE, and the same of its modules
    kernel-core   provides it; has /lib/modules/RELEASE/vmlinuz

Other kernels have a word in the names of their packages and behind a `+` in their releases
(kernel-rt-core, 5.14.0-1.el9.x86_64+rt), or are other versions (ELRepo's kernel-lt and kernel-ml).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from imagebuilder.families.kernel import release_among
from imagebuilder.lock.types import LockedPackage
from imagebuilder.workspace import Workspace

KERNELS = "kernel*"
# What each kernel's package requires and provides: PACKAGE, NAME, which of both, what, version.
FORM = (
    r"[%{=NVRA}\t%{=NAME}\trequires\t%{REQUIRENAME}\t%{REQUIREVERSION}\n]"
    r"[%{=NVRA}\t%{=NAME}\tprovides\t%{PROVIDENAME}\t%{PROVIDEVERSION}\n]"
)
OF_KERNEL = re.compile(
    r"kernel(?:-(?:lt|ml))?(?:-(?P<variant>(?!modules-)[a-z0-9-]+?))?"
    r"-(?P<part>core|modules(?:-(?:core|extra|internal|partner))?|uki-virt)"
)
HEADERS = re.compile(r"kernel(?:-[a-z0-9]+)*-devel")
FOLDER = "/usr/lib/firmware"
# By folder below it; all others are in linux-firmware.
FIRMWARE = {
    "nvidia": "the firmware package of the driver's own version (nvidia-kmod-common of NVIDIA's "
    "repository)",
}
# By prefix of the library's name.
LIBRARIES = {
    "libcuda.so": "the NVIDIA driver's libraries (nvidia-driver-cuda-libs)",
    "libnvidia-ml.so": "the NVIDIA driver's libraries (libnvidia-ml, up to 570 nvidia-driver-NVML)",
    "libamdhip64.so": "the HIP runtime (rocm-hip, AMD's hip-runtime-amd)",
    "libhipblas.so": "hipBLAS (hipblas)",
    "librocblas.so": "rocBLAS (rocblas)",
    "libvulkan.so": "the Vulkan loader (vulkan-loader)",
    "libze_loader.so": "the Level Zero loader (oneapi-level-zero)",
    "libOpenCL.so": "the OpenCL loader (ocl-icd)",
    "libcublas.so": "cuBLAS (nvidia-cublas-cu12, libcublas-12-8)",
    "libcudart.so": "the CUDA runtime (nvidia-cuda-runtime-cu12, cuda-cudart-12-8)",
}


@dataclass(frozen=True)
class KernelRelation:
    """A line of FORM."""

    package: str
    name: str
    requires: bool
    capability: str
    version: str


def find_kernel_release(workspace: Workspace, kernel: str) -> str:
    """The release (`uname -r`) of the one kernel that the package `kernel` installs.

    Follows what packages require and provide, never the order of names or files (warewulf #2199).
    Raises InputError.
    """
    asked = ["rpm", "--query", "--all", "--queryformat", FORM, KERNELS]
    relations = parse_relations(workspace.ask(asked, check=False).stdout)
    packages = brought_by(kernel, relations)
    listed = ""
    if packages:
        listed = workspace.ask(["rpm", "--query", "--list", *packages], check=False).stdout
    return release_among(listed, kernel)


def parse_relations(text: str) -> list[KernelRelation]:
    rows = (line.split("\t") for line in text.splitlines())
    return [
        KernelRelation(row[0], row[1], row[2] == "requires", row[3], row[4].removeprefix("(none)"))
        for row in rows
        if len(row) == 5
    ]


def brought_by(kernel: str, relations: Iterable[KernelRelation]) -> tuple[str, ...]:
    """The packages named `kernel` in every version, and those with exactly what they require."""
    required: dict[str, list[tuple[str, str]]] = {}
    provided: dict[tuple[str, str], list[str]] = {}
    wanted: dict[str, None] = {}
    for each in relations:
        if each.requires:
            required.setdefault(each.package, []).append((each.capability, each.version))
        else:
            provided.setdefault((each.capability, each.version), []).append(each.package)
        if each.name == kernel:
            wanted[each.package] = None
    todo = list(wanted)
    while todo:
        needs = required.get(todo.pop(), ())
        new = {package for need in needs for package in provided.get(need, ())} - wanted.keys()
        wanted |= dict.fromkeys(sorted(new))
        todo += new
    return tuple(wanted)


def is_kernel_package(package: str, release: str) -> bool:
    """Its name has the kernel's variant alone: its version has the rest of the release."""
    match = OF_KERNEL.fullmatch(package)
    return match is not None and (match["variant"] or "") == release.partition("+")[2]


def is_kernel_headers(package: str) -> bool:
    """kernel-headers are those of the C library, and kernel-devel-matched has none."""
    return HEADERS.fullmatch(package) is not None


def release_of(package: LockedPackage) -> str:
    """The release of the kernel that a package has, "" if it has none."""
    match = OF_KERNEL.fullmatch(package.name)
    if match is None or match["part"] != "core":
        return ""
    variant = f"+{match['variant']}" if match["variant"] else ""
    return f"{package.version.rpartition(':')[2]}.{package.architecture}{variant}"


def package_with(path: str) -> str:
    """The package with what a root may lack, for a hint; "" if unknown."""
    place = PurePosixPath(path)
    if place.is_relative_to(FOLDER):
        return FIRMWARE.get(place.relative_to(FOLDER).parts[0], "linux-firmware")
    found = (who for begin, who in LIBRARIES.items() if place.name.startswith(begin))
    return next(found, "")
