# SPDX-License-Identifier: Apache-2.0
"""Find libraries as ld.so(8) of an image does, without running it; and the files that announce
drivers to Vulkan and OpenCL (installable client drivers).

Vulkan: JSON with ICD.library_path, absolute, relative to the file, or a name for dlopen(3)
(Vulkan-Loader, LoaderDriverInterface).  OpenCL: one line with a path or a name (cl_khr_icd).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from imagebuilder.decode import parse_json, parse_object, reading
from imagebuilder.digest import Json
from imagebuilder.elf import AARCH64, X86_64, Needs, read_needs
from imagebuilder.errors import InputError
from imagebuilder.proof.reading.config import read_including
from imagebuilder.proof.reading.texts import split_words
from imagebuilder.proof.reading.units import FOLDERS, Unit, find_unit
from imagebuilder.proof.subject import Subject, once
from imagebuilder.root import Root

# ld.so loads nothing below these; other questions check modules and firmware (some are ELF files).
ELSEWHERE = (
    "/boot/", "/dev/", "/proc/", "/sys/", "/run/", "/tmp/", "/usr/lib/modules/",
    "/usr/lib/firmware/", "/usr/lib/debug/", "/usr/share/doc/", "/usr/include/",
)  # fmt: skip
# Suffixes that no program or library has; skipping these files saves half of the time.
NO_ELF = frozenset(
    (
        ".py", ".pyc", ".pyi", ".h", ".hpp", ".cuh", ".c", ".txt", ".md", ".json", ".html", ".js",
        ".css", ".gz", ".xz", ".zst", ".mo", ".svg", ".png", ".dat", ".hsaco", ".co", ".cubin",
        ".service", ".conf", ".pm", ".pl", ".sh", ".list", ".md5sums", ".yaml", ".cmake",
    )
)  # fmt: skip
TRIPLETS = {X86_64: "x86_64-linux-gnu", AARCH64: "aarch64-linux-gnu"}
HWCAPS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
PYTHON = ("site-packages", "dist-packages")
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
class Files:
    """All programs and libraries of a root by path (symlinks resolved): `native` are those for the
    machine of most programs, `foreign` those for another.
    """

    root: Root
    machine: int
    native: dict[str, Needs]
    foreign: dict[str, Needs]


def read_files(root: Root) -> Files:
    """Read every file.  Raises OSError."""
    found: dict[str, Needs] = {}
    for path in root.walk("/"):
        if path.startswith(ELSEWHERE) or posixpath.splitext(path)[1] in NO_ELF:
            continue
        needs = read_needs(f"{root.path}{path}")
        if needs is not None:
            found[path] = needs
    counts: dict[int, int] = {}
    for needs in found.values():
        counts[needs.machine] = counts.get(needs.machine, 0) + (100 if needs.interpreter else 1)
    machine = max(counts, key=lambda one: counts[one], default=X86_64)
    native = {path: needs for path, needs in found.items() if needs.machine == machine}
    foreign = {path: needs for path, needs in found.items() if path not in native}
    return Files(root, machine, native, foreign)


def scope_of(path: str) -> str:
    """The part of a root whose files load each other: a Python environment, /opt/NAME, or ""."""
    parts = path.split("/")
    for number, part in enumerate(parts):
        if part in PYTHON:
            return "/".join(parts[: number + 1])
    return "/".join(parts[:3]) if parts[1] in ("opt", "srv", "home") else ""


@dataclass
class Search:
    """Finds libraries as ld.so does, with a cache."""

    files: Files
    folders: tuple[str, ...] = ()
    default: tuple[str, ...] = ()
    cache: bytes = b""
    listed: dict[str, frozenset[str]] = field(default_factory=dict)
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    mates: dict[tuple[str, str], str] = field(default_factory=dict)
    # Folders of LD_LIBRARY_PATH of services, which may be of some of them only.
    first: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        triplet = TRIPLETS.get(self.files.machine, "")
        default = [f"/lib/{triplet}", f"/usr/lib/{triplet}"] if triplet else []
        self.default = (*default, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
        folders = [*(folder for folder, _ in configured(self.files.root)), *self.default]
        # Folders that are missing or empty have no library, and may be thousands.
        self.folders = tuple(folder for folder in dict.fromkeys(folders) if self.names(folder))
        self.cache = self.files.root.read("/etc/ld.so.cache") or b""
        for path, needs in self.files.native.items():
            for name in {posixpath.basename(path), needs.soname} - {""}:
                self.mates.setdefault((scope_of(path), name), path)

    def find(self, name: str, of: str, needs: Needs) -> str:
        """The file for `name`, needed by the file `of`; "" if there is none.

        A library in the same scope counts as found even if ld.so would not find it: its loader has
        already loaded the other one (as in torch, systemd and Samba).
        """
        if "/" in name:
            return self.usable(posixpath.dirname(name), posixpath.basename(name))
        paths = needs.runpath or needs.rpath
        for folder in (expanded(one, of, self.files.machine) for one in paths):
            if found := self.in_folder(folder, name):
                return found
        for folder in self.folders:
            found = self.in_folder(folder, name)
            # It knows folders of ld.so.conf only from its cache (ldconfig(8)).
            if found and (folder in self.default or f"{folder}/{name}".encode() in self.cache):
                return found
        for folder in self.first:
            if found := self.in_folder(folder, name):
                return found
        mate = self.mates.get((scope_of(of), name), "")
        return "" if posixpath.dirname(mate) in self.folders else mate

    def named(self, name: str) -> str:
        """The file that dlopen(3) of `name` opens, without a search path of its own."""
        return self.find(name, "/", Needs(self.files.machine, 64))

    def in_folder(self, folder: str, name: str) -> str:
        """A library in a folder, or in its folders for newer processors."""
        if found := self.usable(folder, name):
            return found
        if "glibc-hwcaps" not in self.names(folder):
            return ""
        capable = (self.usable(f"{folder}/glibc-hwcaps/{one}", name) for one in HWCAPS)
        return next((found for found in capable if found), "")

    def usable(self, folder: str, name: str) -> str:
        """The library at a name in a folder; "" for another machine's, which ld.so skips."""
        if name not in self.names(folder):
            return ""
        if (folder, name) not in self.known:
            path = self.files.root.resolve(f"{folder}/{name}") or ""
            if path not in self.files.native:
                path = ""
            self.known[folder, name] = path
        return self.known[folder, name]

    def names(self, folder: str) -> frozenset[str]:
        if folder not in self.listed:
            self.listed[folder] = frozenset(self.files.root.names(folder))
        return self.listed[folder]


def expanded(folder: str, of: str, machine: int) -> str:
    """A search path without `$ORIGIN`, `$LIB` and `$PLATFORM` (ld.so(8), dynamic string tokens)."""
    values = {
        "ORIGIN": posixpath.dirname(of),
        "LIB": f"lib/{TRIPLETS[machine]}" if machine in TRIPLETS else "lib",
        "PLATFORM": {X86_64: "x86_64", AARCH64: "aarch64"}.get(machine, ""),
    }
    for token, value in values.items():
        folder = folder.replace(f"${{{token}}}", value).replace(f"${token}", value)
    return posixpath.normpath(folder)


def configured(root: Root, first: str = "/etc/ld.so.conf") -> Iterator[tuple[str, str]]:
    """The folders of an ld.so.conf(5) and of what it includes, each file once, and the line."""

    def lines_of(path: str) -> Iterator[tuple[str, int, list[str]]]:
        for number, line in enumerate(root.text(path).splitlines(), 1):
            if words := line.partition("#")[0].split():
                yield path, number, words

    def included(line: tuple[str, int, list[str]]) -> list[str] | None:
        path, _, (word, *patterns) = line
        if word != "include":
            return None
        folder = posixpath.dirname(path)
        return [one for each in patterns for one in root.glob(posixpath.join(folder, each))]

    for path, number, (word, *_) in read_including(first, lines_of, included):
        if word.startswith("/"):
            yield word, f"{path}:{number}"


@once
def search_of(subject: Subject) -> Search:
    return Search(read_files(subject.root), first=tuple(searched_folders(subject)))


def searched_folders(subject: Subject) -> Iterator[str]:
    """The folders that services search for libraries before all others (LD_LIBRARY_PATH)."""
    for unit in services_in(subject):
        for line in unit.every("Environment"):
            with suppress(ValueError):  # systemd ignores such a line
                for name, _, value in (word.partition("=") for word in split_words(line)):
                    if name == "LD_LIBRARY_PATH":
                        yield from (each for each in value.split(":") if each.startswith("/"))


def services_in(subject: Subject) -> Iterator[Unit]:
    names = (n for folder in FOLDERS for n in subject.root.names(folder) if n.endswith(".service"))
    yield from filter(None, (find_unit(subject.root, name) for name in dict.fromkeys(names)))


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
