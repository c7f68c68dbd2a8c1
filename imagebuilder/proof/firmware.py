# SPDX-License-Identifier: Apache-2.0
"""Question 2: the firmware that the drivers may ask for, for each device of the profile, is there.

Two sources are held against each other: what the card is known to need (hardware/*.yaml) and
what the driver in this very image can ask for (`firmware=` in its .modinfo).  A file counts when
both name it: a driver that does not know a file will not ask for it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from imagebuilder.families.protocol import Family
from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.cmdline import kernel_words
from imagebuilder.proof.firmware_content import unusable
from imagebuilder.proof.kernel.devices import Drivers, drivers_of
from imagebuilder.proof.kernel.modules import Module, read_modules
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root
from imagebuilder.ui import format_count

SAY = Say(Question.FIRMWARE)
FOLDER = "/usr/lib/firmware"
PATH = "firmware_class.path"
# The kernel takes a plain file before a compressed one, if it is configured for such.
PACKED = {".zst": "CONFIG_FW_LOADER_COMPRESS_ZSTD", ".xz": "CONFIG_FW_LOADER_COMPRESS_XZ"}


@dataclass(frozen=True)
class FirmwareFiles:
    """The firmware of a root as the kernel `release` looks for it: drivers/base/firmware_loader."""

    root: Root
    release: str
    first: tuple[str, ...] = ()  # firmware_class.path=

    @property
    def places(self) -> tuple[str, ...]:
        """Where the kernel looks, in its order."""
        updates = f"{FOLDER}/updates"
        return (
            *self.first,
            f"{updates}/{self.release}",
            updates,
            f"{FOLDER}/{self.release}",
            FOLDER,
        )

    def find(self, name: str) -> str | None:
        """The file that the kernel loads for `name`; None when there is none with content."""
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
        """Whether a file is taken in the place of another one of the same name."""
        place = next(p for p in self.places if path.startswith(f"{p}/"))
        name = path.removeprefix(f"{place}/")
        for ending in PACKED:
            name = name.removesuffix(ending)
        return place != FOLDER and any(
            self.root.lies(f"{FOLDER}/{name}{ending}") for ending in ("", *PACKED)
        )

    def unreadable(self, paths: Sequence[str]) -> tuple[Evidence, str] | None:
        """What the kernel is not configured for, and the option, when a file is compressed so."""
        for config in (f"/usr/lib/modules/{self.release}/config", f"/boot/config-{self.release}"):
            lines = set(self.root.text(config).splitlines())
            for ending, option in PACKED.items():
                packed = [path for path in paths if path.endswith(ending)]
                if packed and lines and f"{option}=y" not in lines:
                    return Evidence(config, said=f"# {option} is not set"), packed[0]
        return None


@dataclass(frozen=True)
class Wanted:
    """What a device's driver may ask for: names, each with the module that lists it ("" when no
    module does); `unmet` are globs of the chip's that no file matches, `unlisted` those that no
    line of the modules does.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def prove_firmware(subject: Subject) -> Iterator[Finding]:
    """Every finding about firmware; none for a profile without devices that asks for none."""
    if not subject.hardware and not subject.expectations.firmware:
        return
    given = kernel_words(subject.cmdline)
    words = [word.value.rstrip("/") for word in given if word.key == PATH]
    files = FirmwareFiles(subject.root, subject.kernel, tuple(words[-1:]))
    drivers = drivers_of(subject)
    for device in subject.hardware:
        chip = chip_of(device)
        if chip is None:
            yield unknown(device)
        else:
            yield from prove_chip(subject, device, chip, drivers, files)
    yield from prove_globs(subject.expectations.firmware, files)


def unknown(device: Hardware) -> Finding:
    """The finding about a device that hardware/*.yaml does not describe."""
    hint = "describe it in hardware/NAME.yaml of the project, so that its firmware is checked"
    if device.assumption:
        return SAY.warning(f"assumed, not proved: {device.assumption}", hint=hint)
    what = f"which firmware {device.pci} ({device.name}) needs is not known"
    return SAY.fault(what, hint=f"{hint}; or say in the recipe why it will work: `assume:`")


def prove_chip(
    subject: Subject, device: Hardware, chip: Chip, drivers: Drivers, files: FirmwareFiles
) -> Iterator[Finding]:
    whose = f"{chip.pci} ({device.name})"
    paths = [p for m in drivers.of(chip) if (p := drivers.kernel.by_name.get(m))]
    modules = [module for module in read_modules(drivers.kernel.root, paths) if module.info]
    name = " or ".join(chip.modules)
    listing = [module for module in modules if module.info.get("firmware")]
    wanted = wanted_by(chip, modules, files)
    if wanted.unlisted:
        parts = "" if not wanted.names else f" that matches {some(wanted.unlisted)}"
        yield SAY.fault(
            f"{name} lists no firmware{parts} for {whose}: this driver is older than the chip",
            *(Evidence(m.path, ".modinfo", "firmware", "none of its chip's") for m in listing),
            hint=f"take a newer kernel or driver, one that lists {some(wanted.unlisted)}, or "
            "correct hardware/*.yaml",
        )
        return
    missing = {n: by for n, by in wanted.names.items() if files.find(n) is None}
    made_do = {n: other for n in missing if (other := stand_in(n, chip, wanted, files))}
    spared = {n: why for n in missing if n not in made_do and (why := spare(n, chip))}
    absent = [n for n in missing if n not in made_do and n not in spared]
    if absent or wanted.unmet:
        names = [*absent, *wanted.unmet]
        what = f"{name} may ask for {some(names)} on {whose}, not in the image"
        evidence = [asked(n, wanted.names.get(n, "")) for n in names]
        yield SAY.fault(what, *evidence, hint=where_from(subject.family, chip, files))
    for wants, other in made_do.items():
        if wants.endswith(tuple(chip.stand_ins)):
            what = f"{name} asks for {wants} on {whose} and makes do with the older {other}"
            hint = f"take a newer {subject.family.package_with(f'{FOLDER}/{wants}')}"
            yield SAY.warning(what, asked(wants, wanted.names[wants]), hint=hint)
    found = [path for n in wanted.names if (path := files.find(n))]
    yield from prove_content(found, files)
    shadowing = [path for path in found if files.shadows(path) and path not in subject.shipped]
    if shadowing:
        what = f"{some(shadowing)} goes before the file of the package, and belongs to no package"
        hint = "remove it, or install it with a package"
        yield SAY.fault(what, *(Evidence(path) for path in shadowing), hint=hint)
    if unpackable := files.unreadable(found):
        where, path = unpackable
        what = f"the kernel cannot unpack {path}"
        hint = "take a kernel that is configured for it, or firmware that is not compressed"
        yield SAY.fault(what, where, hint=hint)
    elif found and not absent and not wanted.unmet:
        what = f"all firmware that {name} may ask for on {whose} is there: "
        what += format_count(len(found), "file")
        yield SAY.fact(what, *(Evidence(path) for path in found))
        for file, why in spared.items():
            what = f"{file} is not in the image, and {whose} works without: {why}"
            yield SAY.fact(what, asked(file, wanted.names[file]))


def prove_content(paths: Sequence[str], files: FirmwareFiles) -> Iterator[Finding]:
    """Faults of files that the kernel finds and cannot use."""
    for path in paths:
        if why := unusable(files.root, path):
            hint = "install its package again, and let nothing change the file afterwards"
            yield SAY.fault(f"{path} {why}", Evidence(path), hint=hint)


def wanted_by(chip: Chip, modules: Sequence[Module], files: FirmwareFiles) -> Wanted:
    """What the modules may ask for on this chip; without a list of theirs, what is known of it."""
    listed = {n: m.path for m in modules for n in m.info.get("firmware", ())}
    if listed:
        of_glob = {glob: fnmatch.filter(sorted(listed), glob) for glob in chip.firmware}
        names = {name: listed[name] for found in of_glob.values() for name in found}
        return Wanted(names, unlisted=tuple(glob for glob, found in of_glob.items() if not found))
    # NVIDIA's driver asks for what lies under its own version, listed or not.
    version = next((v for module in modules if (v := module.first("version"))), "*")
    globs = [re.sub(r"^nvidia/\*/", f"nvidia/{version}/", glob) for glob in chip.firmware]
    found = {glob: files.glob(glob) for glob in globs}
    names = {name: "" for listed_names in found.values() for name in listed_names}
    return Wanted(names, tuple(glob for glob, matches in found.items() if not matches))


def spare(name: str, chip: Chip) -> str:
    """Why the driver does without a file; "" when it does not."""
    reasons = (why for glob, why in chip.optional.items() if fnmatch.fnmatchcase(name, glob))
    return next(reasons, "")


def stand_in(name: str, chip: Chip, wanted: Wanted, files: FirmwareFiles) -> str:
    """The file that is there and that the driver takes as well in place of `name`, "" for none."""
    for pair in chip.stand_ins.items():
        for ending, other in (pair, pair[::-1]):
            if name.endswith(ending):
                instead = f"{name.removesuffix(ending)}{other}"
                if instead in wanted.names and files.find(instead):
                    return instead
    return ""


def asked(name: str, module: str) -> Evidence:
    """Where a module lists a file; without a module, where the file would be."""
    if module:
        return Evidence(module, ".modinfo", "firmware", name)
    return Evidence(f"{FOLDER}/{name}")


def where_from(family: Family, chip: Chip, files: FirmwareFiles) -> str:
    top = chip.firmware[0].partition("/")[0]
    package = family.package_with(f"{FOLDER}/{chip.firmware[0]}") or "the package that has them"
    hint = f"install {package}, and let nothing prune them"
    others = [name.split("/")[1] for name in files.glob(chip.firmware[0])]
    if top == "nvidia" and others:
        hint += f"; there is that of {some(dict.fromkeys(others))}"
    return hint


def prove_globs(globs: Sequence[str], files: FirmwareFiles) -> Iterator[Finding]:
    """Findings about what overlays ask for: each glob matches."""
    for glob in globs:
        found = files.glob(glob)
        if found:
            paths = [path for name in found if (path := files.find(name))]
            what = f"{glob} is there: {format_count(len(found), 'file')}"
            yield SAY.fact(what, *(Evidence(path) for path in paths))
        else:
            hint = "install the package that has it, or let fewer of it be pruned"
            what = f"no firmware matches {glob}"
            yield SAY.fault(what, Evidence(f"{FOLDER}/{glob}"), hint=hint)
