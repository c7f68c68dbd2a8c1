# SPDX-License-Identifier: Apache-2.0
"""Question 2: the image has the firmware that the drivers may ask for on the profile's devices.

Compares two sources: what the card is known to need (hardware/*.yaml) and what the driver in this
image can ask for (`firmware=` in its .modinfo).  Only files that both name count: a driver that
does not know a file will not ask for it.
"""

from __future__ import annotations

import fnmatch
import lzma
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import zstandard

from imagebuilder.families.protocol import Family
from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.limited import unpack_xz, unpack_zst
from imagebuilder.proof.kernel.prove import Drivers, drivers_of
from imagebuilder.proof.reading.modules import Module, read_options
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root
from imagebuilder.ui import format_count

FOLDER = "/usr/lib/firmware"
# The kernel prefers a plain file to a compressed one; it needs these options for the latter.
PACKED = {".zst": "CONFIG_FW_LOADER_COMPRESS_ZSTD", ".xz": "CONFIG_FW_LOADER_COMPRESS_XZ"}
# The XZ file format, 2.1.1.2: the kind of check is the low half of the second flag.  The kernel's
# decoder supports only none and CRC32 (Documentation/staging/xz.rst).
XZ, CHECK_AT, CHECKS = b"\xfd7zXZ\x00", 7, {0: "none", 1: "CRC32", 4: "CRC64", 10: "SHA-256"}
KNOWN = (0, 1)
# What a server or a version control system may deliver instead of a file.
TEXTS: tuple[tuple[bytes, str], ...] = (
    (b"<!doctype html", "is an HTML page"),
    (b"<html", "is an HTML page"),
    (b"<?xml", "is an XML document"),
    (b"version https://git-lfs", "is a Git LFS pointer"),
)


@dataclass(frozen=True)
class FirmwareFiles:
    """The firmware of a root as the kernel `release` finds it: drivers/base/firmware_loader."""

    root: Root
    release: str
    first: tuple[str, ...] = ()  # firmware_class.path=

    @property
    def places(self) -> tuple[str, ...]:
        """The folders that the kernel searches, in its order."""
        updates = f"{FOLDER}/updates"
        return (
            *self.first,
            f"{updates}/{self.release}",
            updates,
            f"{FOLDER}/{self.release}",
            FOLDER,
        )

    def find(self, name: str) -> str | None:
        """The file that the kernel loads for `name`; None if none has content."""
        for place in self.places:
            for ending in ("", *PACKED):
                path = f"{place}/{name}{ending}"
                host = self.root.host(path)
                if host is not None and host.is_file() and host.stat().st_size:
                    return path
        return None

    def glob(self, pattern: str) -> list[str]:
        """The files with content that match a glob, as the kernel names them, each once."""
        found: dict[str, None] = {}
        for place in self.places:
            for ending in ("", *PACKED):
                for path in self.root.glob(f"{place}/{pattern}{ending}"):
                    name = path.removeprefix(f"{place}/")
                    if self.find(name.removesuffix(ending)):
                        found.setdefault(name.removesuffix(ending))
        return sorted(found)

    def shadows(self, path: str) -> bool:
        """Whether a file is used instead of another one of the same name."""
        place = next(p for p in self.places if path.startswith(f"{p}/"))
        name = path.removeprefix(f"{place}/")
        for ending in PACKED:
            name = name.removesuffix(ending)
        return place != FOLDER and any(
            self.root.lies(f"{FOLDER}/{name}{ending}") for ending in ("", *PACKED)
        )

    def unreadable(self, paths: Sequence[str]) -> tuple[Evidence, str] | None:
        """A missing option of the kernel's configuration, and a file that needs it, if any."""
        config, built = read_options(self.root, self.release)
        for ending, option in PACKED.items():
            packed = [path for path in paths if path.endswith(ending)]
            if packed and built and f"{option}=y" not in built:
                return Evidence(config, said=f"# {option} is not set"), packed[0]
        return None


@dataclass(frozen=True)
class Wanted:
    """What a device's driver may ask for: names, each with the module that lists it ("" if none
    does); `unmet` are globs of the chip that no file matches, `unlisted` those that no module
    lists.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def prove_firmware(subject: Subject) -> Findings:
    """Every finding about firmware; none for a profile without devices and `proof: firmware:`."""
    if not subject.hardware and not subject.expectations.firmware:
        return
    words = subject.words
    folders = [word.value.rstrip("/") for word in words if word.key == "firmware_class.path"]
    files = FirmwareFiles(subject.root, subject.kernel, tuple(folders[-1:]))
    drivers = drivers_of(subject)
    for device in subject.hardware:
        chip = chip_of(device)
        if chip is None:
            yield unknown(device)
        else:
            yield from prove_chip(subject, device, chip, drivers, files)
    yield from prove_globs(subject.expectations.firmware, files)


def unknown(device: Hardware) -> Finding:
    hint = "describe it in hardware/NAME.yaml of the project, so that its firmware is checked"
    if device.assumption:
        return warning(f"assumed, not proved: {device.assumption}", hint=hint)
    what = f"it is not known which firmware {device.pci} ({device.name}) needs"
    hint += "; or give the reason why it will work in the recipe: `assume:`"
    return fault(what, hint=hint)


def prove_chip(
    subject: Subject, device: Hardware, chip: Chip, drivers: Drivers, files: FirmwareFiles
) -> Findings:
    whose = f"{chip.pci} ({device.name})"
    paths = [p for m in drivers.of(chip) if (p := drivers.kernel.by_name.get(m))]
    modules = [module for module in drivers.kernel.reader.modules(paths) if module.info]
    name = " or ".join(chip.modules)
    listing = [module for module in modules if module.info.get("firmware")]
    wanted = wanted_by(chip, modules, files)
    if wanted.unlisted:
        parts = "" if not wanted.names else f" that matches {some(wanted.unlisted)}"
        yield fault(
            f"{name} lists no firmware{parts} for {whose}: this driver is older than the chip",
            *(Evidence(m.path, ".modinfo", "firmware", "none of its chip's") for m in listing),
            hint=f"use a newer kernel or driver that lists {some(wanted.unlisted)}, or correct "
            "hardware/*.yaml",
        )
        return
    missing = {n: by for n, by in wanted.names.items() if files.find(n) is None}
    substituted = {n: other for n in missing if (other := find_substitute(n, chip, wanted, files))}
    optional = {n: why for n in missing if n not in substituted and (why := why_optional(n, chip))}
    absent = [n for n in missing if n not in substituted and n not in optional]
    if absent or wanted.unmet:
        names = [*absent, *wanted.unmet]
        what = f"{name} may request {some(names)} on {whose}, but that file is not in the image"
        evidence = [evidence_of(n, wanted.names.get(n, "")) for n in names]
        yield fault(what, *evidence, hint=where_from(subject.family, chip, files))
    for wants, other in substituted.items():
        if wants.endswith(tuple(chip.stand_ins)):
            what = f"{name} requests {wants} on {whose}, but accepts the older {other}"
            hint = f"use a newer {subject.family.package_with(f'{FOLDER}/{wants}')}"
            yield warning(what, evidence_of(wants, wanted.names[wants]), hint=hint)
    found = [path for n in wanted.names if (path := files.find(n))]
    yield from prove_content(found, files)
    shadowing = [path for path in found if files.shadows(path) and path not in subject.shipped]
    if shadowing:
        what = f"{some(shadowing)} overrides the package's file, but belongs to no package"
        hint = "remove it, or install it with a package"
        yield fault(what, *(Evidence(path) for path in shadowing), hint=hint)
    if unpackable := files.unreadable(found):
        where, path = unpackable
        what = f"the kernel cannot unpack {path}"
        hint = "use a kernel that supports its compression, or install uncompressed firmware"
        yield fault(what, where, hint=hint)
    elif found and not absent and not wanted.unmet:
        what = f"all firmware that {name} may request on {whose} is present: "
        what += format_count(len(found), "file")
        yield fact(what, *(Evidence(path) for path in found))
        for file, why in optional.items():
            what = f"{file} is not in the image, but {whose} works without it: {why}"
            yield fact(what, evidence_of(file, wanted.names[file]))


def prove_content(paths: Sequence[str], files: FirmwareFiles) -> Findings:
    for path in paths:
        if why := unusable(files.root, path):
            hint = "reinstall its package, and do not change the file afterwards"
            yield fault(f"{path} {why}", Evidence(path), hint=hint)


def unusable(root: Root, path: str) -> str:
    """Why the kernel or the device cannot use the file, "" if nothing is wrong."""
    content = root.read(path) or b""
    ending = next((end for end in UNPACKERS if path.endswith(end)), "")
    if ending:
        try:
            content = UNPACKERS[ending](content)
        except (lzma.LZMAError, zstandard.ZstdError, ValueError) as error:
            return f"cannot be unpacked: {error}"
    if not content.strip(b"\0"):
        return "contains only zeros"
    begin = content[:64].lstrip().lower()
    return next((why for text, why in TEXTS if begin.startswith(text)), "")


def unpack_checked(content: bytes) -> bytes:
    """Raises ValueError for a check that the kernel does not support, and as unpack_xz()."""
    if content.startswith(XZ) and content[CHECK_AT] & 0xF not in KNOWN:
        kind = CHECKS.get(content[CHECK_AT] & 0xF, "unknown")
        raise ValueError(f"its check is {kind}, but the kernel needs CRC32 (xz --check=crc32)")
    return unpack_xz(content)


UNPACKERS: Mapping[str, Callable[[bytes], bytes]] = {".xz": unpack_checked, ".zst": unpack_zst}


def wanted_by(chip: Chip, modules: Sequence[Module], files: FirmwareFiles) -> Wanted:
    """What the modules may ask for on this chip; if they list nothing, what the chip needs."""
    listed = {n: m.path for m in modules for n in m.info.get("firmware", ())}
    if listed:
        of_glob = {glob: fnmatch.filter(sorted(listed), glob) for glob in chip.firmware}
        names = {name: listed[name] for found in of_glob.values() for name in found}
        return Wanted(names, unlisted=tuple(glob for glob, found in of_glob.items() if not found))
    # NVIDIA's driver asks for the files of its own version, even if it does not list them.
    version = next((v for module in modules if (v := module.first("version"))), "*")
    globs = [re.sub(r"^nvidia/\*/", f"nvidia/{version}/", glob) for glob in chip.firmware]
    found = {glob: files.glob(glob) for glob in globs}
    names = {name: "" for listed_names in found.values() for name in listed_names}
    return Wanted(names, tuple(glob for glob, matches in found.items() if not matches))


def why_optional(name: str, chip: Chip) -> str:
    """Why the driver can do without a file; "" if it cannot."""
    reasons = (why for glob, why in chip.optional.items() if fnmatch.fnmatchcase(name, glob))
    return next(reasons, "")


def find_substitute(name: str, chip: Chip, wanted: Wanted, files: FirmwareFiles) -> str:
    """The existing file that the driver accepts instead of `name`, "" if none."""
    for pair in chip.stand_ins.items():
        for ending, other in (pair, pair[::-1]):
            if name.endswith(ending):
                instead = f"{name.removesuffix(ending)}{other}"
                if instead in wanted.names and files.find(instead):
                    return instead
    return ""


def evidence_of(name: str, module: str) -> Evidence:
    """Where a module lists a file, or without a module, where the file would be."""
    if module:
        return Evidence(module, ".modinfo", "firmware", name)
    return Evidence(f"{FOLDER}/{name}")


def where_from(family: Family, chip: Chip, files: FirmwareFiles) -> str:
    top = chip.firmware[0].partition("/")[0]
    package = family.package_with(f"{FOLDER}/{chip.firmware[0]}") or "the package that has them"
    hint = f"install {package}, and do not prune them"
    others = [name.split("/")[1] for name in files.glob(chip.firmware[0])]
    if top == "nvidia" and others:
        hint += f"; the image has that of {some(dict.fromkeys(others))}"
    return hint


def prove_globs(globs: Sequence[str], files: FirmwareFiles) -> Findings:
    for glob in globs:
        found = files.glob(glob)
        if found:
            paths = [path for name in found if (path := files.find(name))]
            what = f"{glob} is present: {format_count(len(found), 'file')}"
            yield fact(what, *(Evidence(path) for path in paths))
        else:
            hint = "install the package that has it, or prune less of it"
            yield fault(f"no firmware matches {glob}", Evidence(f"{FOLDER}/{glob}"), hint=hint)
