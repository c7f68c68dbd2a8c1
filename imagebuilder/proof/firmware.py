# SPDX-License-Identifier: Apache-2.0
"""Question 2: the firmware that the drivers may ask for, for each device of the profile, is there.

Two sources are held against each other: what the chip is known to need (imagebuilder/chips.py) and
what the driver in this very image can ask for (`firmware=` in its .modinfo).  A file counts when
both name it: a driver that does not know a file will not ask for it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from imagebuilder.chips import STAND_INS, Chip, find_chip
from imagebuilder.proof.kernel.devices import Drivers, drivers_of
from imagebuilder.proof.kernel.modules import Module, read_modules
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.types import Evidence, Finding, Question
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root
from imagebuilder.ui import format_count

SAY = Say(Question.FIRMWARE)
FOLDER = "/usr/lib/firmware"
# The kernel takes a plain file before a compressed one, if it is configured for such.
PACKED = {".zst": "CONFIG_FW_LOADER_COMPRESS_ZSTD", ".xz": "CONFIG_FW_LOADER_COMPRESS_XZ"}
# Which package of Debian's has the files of a folder; Ubuntu has all in linux-firmware.
PACKAGES = {
    "amdgpu": "firmware-amd-graphics",
    "amdnpu": "firmware-amd-graphics",
    "i915": "firmware-intel-graphics (firmware-misc-nonfree up to bookworm)",
    "xe": "firmware-intel-graphics",
    "nvidia": "the firmware package of the driver's own version (firmware-nvidia-gsp, or the "
    "vendor's nvidia-firmware)",
}


@dataclass(frozen=True)
class FirmwareFiles:
    """The firmware of a root as the kernel `release` looks for it: drivers/base/firmware_loader."""

    root: Root
    release: str

    @property
    def places(self) -> tuple[str, ...]:
        """Where the kernel looks, in its order."""
        updates = f"{FOLDER}/updates"
        return (f"{updates}/{self.release}", updates, f"{FOLDER}/{self.release}", FOLDER)

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
    module does); `unmet` are globs of the chip's that nothing matches.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()


def prove_firmware(subject: Subject) -> Iterator[Finding]:
    """Every finding about firmware; none for a profile without devices that asks for none."""
    if not subject.hardware and not subject.expectations.firmware:
        return
    files = FirmwareFiles(subject.root, subject.kernel)
    drivers = drivers_of(subject)
    for device in subject.hardware:
        chip = find_chip(device.pci)
        if chip is None:
            yield unknown(device, told=bool(subject.expectations.firmware))
        else:
            yield from prove_chip(device, chip, drivers, files)
    yield from prove_globs(subject.expectations.firmware, files)


def unknown(device: Hardware, *, told: bool) -> Finding:
    """The finding about a device that is not in our table."""
    what = f"which firmware {device.pci} ({device.name}) needs is not known"
    if told:
        return SAY.fact(f"{what}; what the overlays name is looked for")
    hint = "name its files under proof: firmware: in an overlay; the driver's modinfo lists them"
    return SAY.warning(what, hint=hint)


def prove_chip(
    device: Hardware, chip: Chip, drivers: Drivers, files: FirmwareFiles
) -> Iterator[Finding]:
    whose = f"{chip.pci} ({device.name})"
    paths = [p for m in drivers.of(chip) if (p := drivers.kernel.by_name.get(m))]
    modules = [module for module in read_modules(drivers.kernel.root, paths) if module.info]
    name = " or ".join(chip.modules)
    listing = [module for module in modules if module.info.get("firmware")]
    wanted = wanted_by(chip, modules, files)
    if listing and not wanted.names:
        yield SAY.fault(
            f"{name} lists no firmware for {whose}: this driver is older than the chip",
            *(Evidence(m.path, ".modinfo", "firmware", "none of its chip's") for m in listing),
            hint=f"take a newer kernel or driver, one that lists {some(chip.firmware)}",
        )
        return
    missing = {n: by for n, by in wanted.names.items() if files.find(n) is None}
    made_do = {n: other for n in missing if (other := stand_in(n, wanted, files))}
    absent = [n for n in missing if n not in made_do]
    if absent or wanted.unmet:
        names = [*absent, *wanted.unmet]
        what = f"{name} may ask for {some(names)} on {whose}, not in the image"
        evidence = [asked(n, wanted.names.get(n, "")) for n in names]
        yield SAY.fault(what, *evidence, hint=where_from(chip, files))
    for wants, other in made_do.items():
        if wants.endswith(tuple(newer for newer, _ in STAND_INS)):
            what = f"{name} asks for {wants} on {whose} and makes do with the older {other}"
            hint = f"take a newer {PACKAGES[wants.split('/')[0]]}"
            yield SAY.warning(what, asked(wants, wanted.names[wants]), hint=hint)
    found = [path for n in wanted.names if (path := files.find(n))]
    if unpackable := files.unreadable(found):
        where, path = unpackable
        what = f"the kernel cannot unpack {path}"
        hint = "take a kernel that is configured for it, or firmware that is not compressed"
        yield SAY.fault(what, where, hint=hint)
    elif found and not absent and not wanted.unmet:
        what = f"all firmware that {name} may ask for on {whose} is there: "
        what += format_count(len(found), "file")
        yield SAY.fact(what, *(Evidence(path) for path in found))


def wanted_by(chip: Chip, modules: Sequence[Module], files: FirmwareFiles) -> Wanted:
    """What the modules may ask for on this chip; without a list of theirs, what is known of it."""
    listed = {n: m.path for m in modules for n in m.info.get("firmware", ())}
    if listed:
        return Wanted(
            {n: listed[n] for glob in chip.firmware for n in sorted(listed)
             if fnmatch.fnmatchcase(n, glob)}
        )  # fmt: skip
    # NVIDIA's driver asks for what lies under its own version, listed or not.
    version = next((v for module in modules if (v := module.first("version"))), "*")
    globs = [re.sub(r"^nvidia/\*/", f"nvidia/{version}/", glob) for glob in chip.firmware]
    found = {glob: files.glob(glob) for glob in globs}
    names = {name: "" for listed_names in found.values() for name in listed_names}
    return Wanted(names, tuple(glob for glob, matches in found.items() if not matches))


def stand_in(name: str, wanted: Wanted, files: FirmwareFiles) -> str:
    """The file that is there and that the driver takes as well in place of `name`, "" for none."""
    for pair in STAND_INS:
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


def where_from(chip: Chip, files: FirmwareFiles) -> str:
    top = chip.firmware[0].partition("/")[0]
    hint = f"install {PACKAGES.get(top, 'the package that has them')}, and let nothing prune them"
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
