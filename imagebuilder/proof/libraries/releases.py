# SPDX-License-Identifier: Apache-2.0
"""Parts of a card's software that work only together in one version, but NVIDIA's driver."""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.libraries import SAY
from imagebuilder.proof.libraries.closure import Closure
from imagebuilder.proof.reading.libraries import Files, Search, services_in
from imagebuilder.proof.reading.modules import ENDINGS, module_name
from imagebuilder.proof.reading.quotes import unquoted
from imagebuilder.proof.reading.units import split_prefixes
from imagebuilder.proof.subject import Subject

# Those of which a process may have one version.
RUNTIMES = frozenset(("libamdhip64", "libhsa-runtime64", "libcudart", "librocblas", "libcublas"))
# XRT's own interface between these changes with every release.
XRT = re.compile(r"libxrt_\w+\.so\.(\d+\.\d+)\.\d+")
FIRMWARE = "/usr/lib/firmware"
# Magic, version of the header, and three numbers.
HEADER = struct.Struct("<5I")


def prove_runtimes(closure: Closure, declared: Mapping[str, str]) -> Iterator[Finding]:
    """Warnings of two versions of a runtime in one process."""
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
                yield SAY.warning(what, *map(Evidence, pair), hint=hint)


def prove_releases(closure: Closure) -> Iterator[Finding]:
    """A warning of libraries of XRT of several releases."""
    found: dict[str, str] = {}
    for path in closure.files.native:
        if match := XRT.fullmatch(posixpath.basename(path)):
            found.setdefault(match[1], path)
    if len(found) > 1:
        what = f"libraries of XRT are of releases {' and '.join(sorted(found))}: they only work "
        what += "with those of their own release"
        hint = "install all packages of XRT in one version"
        yield SAY.warning(what, *map(Evidence, found.values()), hint=hint)


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


def prove_renamed(search: Search) -> Iterator[Finding]:
    """Warnings of drivers that are there twice, under a former name too; a link for old programs
    leads to the same file.
    """
    for old, new in RENAMED:
        paths = [search.named(old), search.named(new)]
        if all(paths) and paths[0] != paths[1]:
            what = f"Level Zero loads two drivers of one device: {old}, its former name, is "
            what += f"another release than {new}"
            hint = f"remove {paths[0]}, and the package that has it"
            yield SAY.warning(what, *map(Evidence, paths), hint=hint)


def prove_driver_releases(subject: Subject, files: Files) -> Iterator[Finding]:
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


def prove_library(
    release: DriverRelease, module: Evidence, libraries: dict[str, str]
) -> Iterator[Finding]:
    version, path = max(libraries.items())
    what = f"{release.module} is {module.said}, but {posixpath.basename(path)} is {version}: the "
    what += f"library refuses the device ({release.says})"
    hint = "install driver, library and firmware of one version; DKMS builds the driver"
    yield SAY.warning(what, module, Evidence(path, said=version), hint=hint)


def prove_firmware(
    subject: Subject, release: DriverRelease, others: dict[str, str]
) -> Iterator[Finding]:
    place = f"{FIRMWARE}/{release.firmware}"
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
        yield SAY.warning(what, Evidence(place, said=version), Evidence(path), hint=hint)
