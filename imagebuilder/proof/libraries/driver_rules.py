# SPDX-License-Identifier: Apache-2.0
"""Parts of a card's software that work only together in one version.  NVIDIA's rules: all parts of
its driver have one version, which supports the CUDA in use.

The kernel module refuses libraries and GSP firmware of another version than its own ("API
mismatch").  CUDA: Toolkit Release Notes 13.2, table "CUDA Toolkit and Corresponding Driver
Versions"; CUDA Compatibility, "Minor Version Compatibility".  Blackwell needs branch 570 and the
open modules: driver README, chapter "Open Linux Kernel Modules".
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.proof.libraries.closure import Closure
from imagebuilder.proof.reading.libraries import Files, Search, services_in
from imagebuilder.proof.reading.modules import ENDINGS, Module, ModuleReader, module_name
from imagebuilder.proof.reading.texts import unquoted, whole
from imagebuilder.proof.reading.units import split_prefixes
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.root import Root

Version = tuple[int, ...]

# The driver of each release of CUDA, as it was first published.
NEEDS = {
    "11.8": "520.61.05", "12.0": "525.60.13", "12.1": "530.30.02", "12.2": "535.54.03",
    "12.3": "545.23.06", "12.4": "550.54.14", "12.5": "555.42.02", "12.6": "560.28.03",
    "12.8": "570.26", "12.9": "575.51.03", "13.0": "580.65.06", "13.1": "590.44.01",
    "13.2": "595.45.04",
}  # fmt: skip
# From here on a driver runs every minor version of that CUDA, but compiles no PTX of newer ones.
MINOR = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
# From this compute capability on (Blackwell, sm_100): the branch, and the open modules.
BLACKWELL, BLACKWELL_BRANCH = 100, "570.26"
# The open modules drive cards with a GSP, those from Turing on (sm_75); after 580 no module drives
# older ones ("CUDA Toolkit, Driver, and Architecture Matrix", last driver support).
TURING, LAST_BEFORE_TURING = 75, 580
OPEN = "Dual MIT/GPL"
VENDOR = "10de"
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm")
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/*", "/usr/lib64", "/usr/lib",
    "/usr/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu/nvidia/*",
)  # fmt: skip
FIRMWARE = "/usr/lib/firmware/nvidia"
NUMBERS = re.compile(r"\d{3}\.\d+(?:\.\d+)?")
PACKAGES = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?")
# Those of which a process may have one version.
RUNTIMES = frozenset(("libamdhip64", "libhsa-runtime64", "libcudart", "librocblas", "libcublas"))
# XRT's own interface between these changes with every release.
XRT = re.compile(r"libxrt_\w+\.so\.(\d+\.\d+)\.\d+")
# Magic, version of the header, and three numbers.
HEADER = struct.Struct("<5I")


@dataclass(frozen=True)
class DriverPart:
    what: str
    path: str
    version: str


def prove_driver(subject: Subject) -> Findings:
    """Every finding about the driver; none without an NVIDIA card or software for one."""
    wanted = cuda_wanted(subject)
    if not wanted and not any(one.pci.startswith(VENDOR) for one in subject.hardware):
        return
    parts = [*libraries_of(subject.root), *firmware_of(subject.root)]
    modules = list(modules_of(subject.modules, subject.kernel))
    parts += [
        DriverPart("nvidia.ko", m.path, m.first("version")) for m in modules if m.first("version")
    ]
    if not parts:
        if wanted:
            yield no_driver(wanted)
        return
    versions = list(dict.fromkeys(part.version for part in parts))
    evidence = tuple(Evidence(part.path, said=part.version) for part in parts)
    if len(versions) > 1:
        said = ", ".join(
            f"{part.what} {part.version}"
            for part in {(p.what, p.version): p for p in parts}.values()
        )
        hint = "pin driver, libraries and firmware to one version: the module rejects any other"
        yield fault(f"mixed driver versions: {said}", *evidence, hint=hint)
    lowest = min(versions, key=parse)
    user = [part for part in parts if part.what.startswith("libcuda")]
    if wanted and not user:
        yield no_driver(wanted)
    targets = [capability(target) for target in subject.targets if target.startswith("sm_")]
    yield from prove_blackwell(max(targets, default=0), lowest, modules, evidence)
    yield from prove_before_turing(min(targets, default=TURING), lowest, modules, evidence)
    yield from prove_minimum(subject, lowest, evidence)
    for cuda in wanted:
        yield prove_cuda(cuda, lowest, max(targets, default=0), evidence)
    if len(versions) == 1:
        kinds = ", ".join(dict.fromkeys(part.what for part in parts))
        said = f"all parts of the driver have version {lowest}: {kinds}"
        yield fact(said, *evidence)


def capability(target: str) -> int:
    """`sm_120a` -> 120; 0 for other texts."""
    found = re.fullmatch(r"sm_(\d+)[af]?", target)
    return whole(found[1]) if found else 0


def parse(version: str) -> Version:
    """`570.124.06` -> (570, 124, 6)."""
    return tuple(whole(number) for number in version.split("."))


def cuda_wanted(subject: Subject) -> tuple[str, ...]:
    """The versions of CUDA that overlays declare or Python environments contain."""
    found = list(subject.expectations.cuda)
    for wheels in subject.wheels.values():
        found += [
            ".".join(version.split(".")[:2])
            for name, version in wheels.items()
            if PACKAGES.fullmatch(name)
        ]
    return tuple(dict.fromkeys(found))


def libraries_of(root: Root) -> Iterator[DriverPart]:
    seen = set()
    for folder in FOLDERS:
        for library in LIBRARIES:
            for path in root.glob(f"{folder}/{library}.so.*"):
                version = posixpath.basename(path).removeprefix(f"{library}.so.")
                if NUMBERS.fullmatch(version) and root.is_file(path) and path not in seen:
                    seen.add(path)
                    yield DriverPart(library, path, version)


def firmware_of(root: Root) -> Iterator[DriverPart]:
    """The GSP firmware of NVIDIA's driver: a folder per version (nouveau's are named by chip)."""
    for name in root.names(FIRMWARE):
        if NUMBERS.fullmatch(name):
            yield DriverPart("GSP firmware", f"{FIRMWARE}/{name}", name)


def modules_of(reader: ModuleReader, kernel: str) -> Iterator[Module]:
    """nvidia.ko for the kernel that nodes boot."""
    for path in reader.root.walk(f"/usr/lib/modules/{kernel}"):
        # Debian builds nvidia-current.ko and renames it with an alias.
        name = module_name(path) if path.endswith(ENDINGS) else ""
        if name == "nvidia" or re.fullmatch(r"nvidia_current(_open)?", name):
            yield reader.module(path)


def no_driver(wanted: tuple[str, ...]) -> Finding:
    what = f"no NVIDIA driver: CUDA {' '.join(wanted)} needs libcuda.so.1"
    where = Evidence("/usr/lib/x86_64-linux-gnu/libcuda.so.*", said="matches no file")
    hint = "add the overlay that has the driver (nvidia-cuda-12.8), or a variant without CUDA"
    return fault(what, where, hint=hint)


def prove_blackwell(
    target: int, version: str, modules: list[Module], evidence: tuple[Evidence, ...]
) -> Findings:
    if target < BLACKWELL:
        return
    if parse(version) < parse(BLACKWELL_BRANCH):
        what = f"driver {version} does not support sm_{target}, which needs branch 570 or newer"
        hint = "use the driver from NVIDIA's repository (nvidia-cuda-12.8, vendor variant)"
        yield fault(what, *evidence, hint=hint)
    for module in modules:
        licence = module.first("license")
        if licence and licence != OPEN:
            what = f"nvidia.ko is the proprietary module: sm_{target} needs the open one"
            hint = "install the open kernel modules (nvidia-open, nvidia-open-kernel-dkms)"
            yield fault(what, Evidence(module.path, ".modinfo", "license", licence), hint=hint)


def prove_before_turing(
    target: int, version: str, modules: list[Module], evidence: tuple[Evidence, ...]
) -> Findings:
    if target >= TURING:
        return
    if parse(version)[0] > LAST_BEFORE_TURING:
        what = f"driver {version} does not support sm_{target}: branch 580 is the last that does"
        yield fault(what, *evidence, hint="use a driver of branch 580")
    for module in modules:
        if module.first("license") == OPEN:
            what = f"nvidia.ko is the open module, which does not drive sm_{target}"
            hint = "install NVIDIA's closed kernel modules"
            yield fault(what, Evidence(module.path, ".modinfo", "license", OPEN), hint=hint)


def prove_minimum(subject: Subject, version: str, evidence: tuple[Evidence, ...]) -> Findings:
    """Faults of cards that are newer than the driver, even if it supports their generation."""
    for device in subject.hardware:
        chip = chip_of(device)
        least = chip.minimum.get("driver", "") if chip else ""
        if chip and chip.pci.startswith(VENDOR) and not least:
            what = f"it is not known which driver first supports {chip.pci} ({device.name})"
            hint = f"look up the card in the README of driver {version}"
            yield warning(what, *evidence, hint=hint)
        known = parse(version) < parse(BLACKWELL_BRANCH) and capability(device.target) >= BLACKWELL
        if chip and least and parse(version) < parse(least) and not known:
            what = f"driver {version} does not support {chip.pci} ({device.name})"
            yield fault(what, *evidence, hint=f"use driver {least} or newer")


def prove_cuda(cuda: str, version: str, target: int, evidence: tuple[Evidence, ...]) -> Finding:
    needs = NEEDS.get(cuda) or newest_before(cuda)
    if parse(version) >= parse(needs):
        said = f"driver {version} supports CUDA {cuda}, which needs {needs}"
        return fact(said, *evidence)
    least = MINOR.get(cuda.partition(".")[0], needs)
    hint = f"use driver {needs} or newer, or software built with an older CUDA"
    if parse(version) < parse(least) or target >= BLACKWELL:
        return fault(
            f"driver {version} does not support CUDA {cuda}, which needs {needs}",
            *evidence,
            hint=hint,
        )
    return warning(
        f"driver {version} supports CUDA {cuda} with limits (minor version compatibility): "
        f"it cannot compile PTX of that version; {needs} or newer has no limits",
        *evidence,
        hint=hint,
    )


def newest_before(cuda: str) -> str:
    """The driver for a release that is not in the table: that of the last one before it."""
    older = [one for one in NEEDS if parse(one) <= parse(cuda)]
    return NEEDS[max(older, key=parse)] if older else next(iter(NEEDS.values()))


def prove_runtimes(closure: Closure, declared: Mapping[str, str]) -> Findings:
    told: set[tuple[str, ...]] = set()
    for path, why in declared.items():
        versions: dict[str, dict[str, str]] = {}
        for other in closure.reached({path: why}):
            stem, _, version = posixpath.basename(other).partition(".so.")
            if stem in RUNTIMES:
                versions.setdefault(stem, {})[version.partition(".")[0]] = other
        for stem, found in versions.items():
            pair = tuple(sorted(found.values()))
            if len(found) > 1 and pair not in told:
                told.add(pair)
                what = f"{path} loads two versions of {stem} ({' and '.join(pair)}): one does not "
                what += "know the memory and streams of the other"
                hint = "install libraries of one release of the runtime"
                yield warning(what, *map(Evidence, pair), hint=hint)


def prove_releases(closure: Closure) -> Findings:
    found: dict[str, str] = {}
    for path in closure.files.native:
        if match := XRT.fullmatch(posixpath.basename(path)):
            found.setdefault(match[1], path)
    if len(found) > 1:
        what = f"libraries of XRT are of releases {' and '.join(sorted(found))}: they only work "
        what += "with those of their own release"
        hint = "install all packages of XRT in one version"
        yield warning(what, *map(Evidence, found.values()), hint=hint)


@dataclass(frozen=True)
class DriverRelease:
    """The name of a kernel module with a version, the library that opens its device, with the
    version in its name, and what the library says of another version.

    The header of a firmware file begins with `magic`, and has its version from byte 8 on.
    """

    module: str
    library: re.Pattern[str]
    says: str
    firmware: str = ""
    magic: int = 0


# HailoRT: "Driver version (4.18.0) is different from library version (4.19.0)" (hailo-ai/
# hailo-rpi5-examples #72), "Unsupported firmware operation. Host: 4.20.0, Device: 4.21.0" (#142).
# Hailo-10 has a driver and a library of version 5.  The header is firmware_header_t of the driver.
HAILORT = re.compile(r"libhailort\.so\.(?P<version>\d{1,4}\.\d{1,4}\.\d{1,4})")
INVALID = "HAILO_INVALID_DRIVER_VERSION"
RELEASES = (
    DriverRelease("hailo_pci", HAILORT, INVALID, "hailo/hailo8_fw.bin", 0x1DD89DE0),
    DriverRelease("hailo1x_pci", HAILORT, INVALID),
)
# A driver's former name, and the one that replaced it, which Level Zero's loader both opens
# (oneapi-src/level-zero, driver_discovery_lin.cpp).  The old file has to be removed
# (intel/linux-npu-driver, docs/overview.md: renamed in 1.16; #107).
RENAMED = (("libze_intel_vpu.so.1", "libze_intel_npu.so.1"),)


def prove_renamed(search: Search) -> Findings:
    """Warnings of drivers that are there twice; a link for old programs is the same file."""
    for old, new in RENAMED:
        paths = [search.named(old), search.named(new)]
        if all(paths) and paths[0] != paths[1]:
            what = f"Level Zero loads two drivers of one device: {old}, its former name, is "
            what += f"another release than {new}"
            hint = f"remove {paths[0]}, and the package that has it"
            yield warning(what, *map(Evidence, paths), hint=hint)


def prove_driver_releases(subject: Subject, files: Files) -> Findings:
    """Warnings: a container may have a library of the right version."""
    for release in RELEASES:
        everywhere = (*subject.drivers.files, *inserted(subject))
        modules = [path for path in everywhere if module_name(path) == release.module]
        libraries = {
            found["version"]: path
            for path in files.native
            if (found := release.library.fullmatch(posixpath.basename(path)))
        }
        for path in modules[:1]:
            version = subject.modules.module(path).first("version")
            if version and libraries and version not in libraries:
                yield from prove_library(release, Evidence(path, said=version), libraries)
            driver = {version: path} if version else {}
            yield from prove_firmware(subject, release, libraries or driver)


def inserted(subject: Subject) -> Iterator[str]:
    """The modules that units load from another folder (insmod(8))."""
    for unit in services_in(subject):
        for line in (*unit.every("ExecStartPre"), *unit.every("ExecStart")):
            if posixpath.basename(split_prefixes(line)[1]) == "insmod":
                yield from (word for word in unquoted(line)[1:] if word.endswith(ENDINGS))


def prove_library(release: DriverRelease, module: Evidence, libraries: dict[str, str]) -> Findings:
    version, path = max(libraries.items())
    what = f"{release.module} is {module.said}, but {posixpath.basename(path)} is {version}: the "
    what += f"library refuses the device ({release.says})"
    hint = "install driver, library and firmware of one version; DKMS builds the driver"
    yield warning(what, module, Evidence(path, said=version), hint=hint)


def prove_firmware(subject: Subject, release: DriverRelease, others: dict[str, str]) -> Findings:
    place = f"/usr/lib/firmware/{release.firmware}"
    content = subject.root.read(place) if release.firmware else None
    if not content or not others or len(content) < HEADER.size:
        return
    magic, _, *numbers = HEADER.unpack_from(content)
    version = ".".join(map(str, numbers))
    if magic == release.magic and version not in others:
        other, path = max(others.items())
        what = f"{place} is firmware {version}, but {posixpath.basename(path)} is {other}: some "
        what += "operations of the device fail"
        hint = "install driver, library and firmware of one version"
        yield warning(what, Evidence(place, said=version), Evidence(path), hint=hint)
