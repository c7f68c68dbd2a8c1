# SPDX-License-Identifier: Apache-2.0
"""The files that announce drivers to Vulkan and OpenCL (installable client drivers).

Vulkan: JSON with ICD.library_path, absolute, relative to the file, or a name for dlopen(3)
(Vulkan-Loader, LoaderDriverInterface).  OpenCL: one line with a path or a name (cl_khr_icd).
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Any, cast

from imagebuilder.decode import parse_json, parse_object, reading
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.proof.reading.libraries import Search
from imagebuilder.root import Root

VULKAN = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
SETTINGS = "/etc/vulkan/loader_settings.d/vk_loader_settings.json"
OPENCL = "/etc/OpenCL/vendors"
# By PCI vendor: the names of its Vulkan drivers, and the package with the first one.
DRIVERS = {
    "1002": (("libvulkan_radeon", "amdvlk"), "mesa-vulkan-drivers"),
    "8086": (("libvulkan_intel",), "mesa-vulkan-drivers"),
    "10de": (("libGLX_nvidia", "libEGL_nvidia", "libvulkan_nouveau"), "nvidia-vulkan-icd"),
}
# By PCI vendor: the file with which that package announces it.
USUAL = {"1002": "radeon_icd.json", "8086": "intel_icd.json", "10de": "nvidia_icd.json"}
SOFTWARE = ("libvulkan_lvp", "libvk_swiftshader")


@dataclass(frozen=True)
class Icd:
    """An announced driver: the file, its text (`said`), and the library it leads to.

    `library` is "" if missing; `problem` is why the file is invalid, else "".
    """

    kind: str
    path: str
    said: str = ""
    library: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        return posixpath.basename(self.said)


def find_icds(root: Root, search: Search) -> list[Icd]:
    chosen = chosen_drivers(root)
    if chosen is None:
        found = [read_vulkan(root, search, path) for path in files_in(root, *VULKAN)]
    else:
        found = [replace(read_vulkan(root, search, p), path=SETTINGS) for p in chosen]
    for name in root.names(OPENCL):
        if name.endswith(".icd"):
            path = f"{OPENCL}/{name}"
            said = (root.text(path).split("\n") or [""])[0].strip()
            found.append(Icd("OpenCL", path, said, find_library(search, path, said)))
    return found


def announced(root: Root) -> list[str]:
    """The ICD files that the Vulkan loader reads if no variable names others."""
    chosen = chosen_drivers(root)
    return files_in(root, *VULKAN) if chosen is None else chosen


def files_in(root: Root, *folders: str) -> list[str]:
    """The ICD files in folders."""
    return [f"{f}/{name}" for f in folders for name in root.names(f) if name.endswith(".json")]


def chosen_drivers(root: Root) -> list[str] | None:
    """The ICD files that settings of the Vulkan loader use exclusively; None if it uses all.

    Vulkan-Loader, loader settings file, `additional_drivers_use_exclusively`.
    """
    text = root.text(SETTINGS)
    if not text:
        return None
    try:
        whole = cast("dict[str, Any]", parse_json(text, SETTINGS))
        listed = [*whole.get("settings_array", ()), whole.get("settings") or {}]
        found = [each for each in listed if each.get("additional_drivers_use_exclusively")]
        drivers = [str(driver["path"]) for each in found for driver in each["additional_drivers"]]
    except (InputError, KeyError, TypeError, AttributeError):
        return None
    return drivers if found else None


def read_vulkan(root: Root, search: Search, path: str) -> Icd:
    said = driver_said(root, path)
    if said is None:
        return Icd("Vulkan", path, problem="is no JSON with ICD.library_path")
    return Icd("Vulkan", path, said, find_library(search, path, said))


def driver_said(root: Root, path: str) -> str | None:
    """The library that an ICD file of Vulkan names, None if it is missing or invalid."""
    try:
        with reading(path):
            icd = cast("dict[str, Json]", parse_object(root.text(path), path)["ICD"])
            return str(icd["library_path"])
    except InputError:
        return None


def find_library(search: Search, path: str, said: str) -> str:
    if not said:
        return ""
    if "/" not in said:
        return search.named(said)
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(path), said))
    return search.usable(posixpath.dirname(whole), posixpath.basename(whole))
