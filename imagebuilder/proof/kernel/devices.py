# SPDX-License-Identifier: Apache-2.0
"""Which module drives each device of the profile, and whether anything blocks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.cmdline import CMDLINE
from imagebuilder.proof.reading.modprobe import ModuleSettings, read_settings
from imagebuilder.proof.reading.modules import Kernel, module_name, plain
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.agreement import numbers
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.types import Hardware

SAY = Say(Question.KERNEL)
# Other drivers that claim NVIDIA's cards: the first loaded module gets the card.
RIVALS = ("nouveau", "nova_core", "nvidiafb")
# These drive no device if the command line contains `nomodeset`.
KMS = frozenset({"amdgpu", "i915", "xe", "nouveau", "radeon"})
# Folders of modules that are not from the kernel's own tree.
BUILT = frozenset(("updates", "extra"))
UNBLOCK = "remove that line, or remove the device from hardware: if the image is not for it"


@dataclass(frozen=True)
class Drivers:
    kernel: Kernel
    settings: ModuleSettings

    def find(self, name: str) -> str | None:
        """The module that is loaded for `name`, None if the image does not have it."""
        real = self.settings.real(name)
        return real if real in self.kernel.by_name or real in self.kernel.builtin else None

    def file(self, module: str) -> str:
        """The file of a module of the image, or the list of built-in modules."""
        return self.kernel.by_name.get(module, f"{self.kernel.folder}/modules.builtin")

    def blocker(self, name: str) -> Evidence | None:
        """What prevents a module from being loaded, or from driving its device."""
        if self.settings.nomodeset and name in KMS:
            return Evidence(CMDLINE, said="nomodeset")
        found = self.find(name)
        for each in dict.fromkeys((name, found or name)):
            if said := self.settings.blocker(each):
                return said
        for path in self.kernel.needs(self.file(found)) if found else ():
            if said := self.settings.never.get(module_name(path)):
                return said
        return None

    def usable(self, chip: Chip) -> bool:
        """Whether a module of the image claims a chip and nothing blocks it."""
        claims = self.kernel.claims(chip.pci)
        return any(self.find(n) in claims and not self.blocker(n) for n in chip.modules)

    def of(self, chip: Chip) -> tuple[str, ...]:
        """The modules of the image that can drive a chip."""
        return tuple(found for name in chip.modules if (found := self.find(name)))


def drivers_of(subject: Subject) -> Drivers:
    settings = read_settings(subject)
    return Drivers(subject.drivers, settings)


def needed_files(subject: Subject, drivers: Drivers) -> tuple[str, ...]:
    """The files of the modules that devices and overlays need, with their dependencies."""
    names = [name for chip in subject.chips for name in (*chip.modules, *chip.beside)]
    found = [drivers.find(name) for name in (*names, *subject.expectations.modules)]
    files = [path for name in found if name and (path := drivers.kernel.by_name.get(name))]
    needs = [need for path in files for need in drivers.kernel.needs(path)]
    return tuple(dict.fromkeys((*files, *needs)))


def prove_devices(subject: Subject, drivers: Drivers) -> Iterator[Finding]:
    needed: list[str] = []
    for device in subject.hardware:
        chip = chip_of(device)
        if chip is None:
            yield unknown_device(device, drivers)
        else:
            yield from known_device(device, chip, drivers)
            yield from prove_programs(device, chip, drivers)
            needed.extend(chip.beside if drivers.of(chip) else ())
    # A device that nothing drives is already reported: do not report its driver again by name.
    reported = {name for chip in subject.chips if not drivers.usable(chip) for name in chip.modules}
    expected = map(plain, subject.expectations.modules)
    needed.extend(name for name in expected if name not in reported)
    yield from prove_needed(tuple(dict.fromkeys(needed)), drivers)


def unknown_device(device: Hardware, drivers: Drivers) -> Finding:
    """The finding about a device that hardware/*.yaml does not describe: a module must claim it."""
    claims = drivers.kernel.claims(device.pci)
    aliases = f"{drivers.kernel.folder}/modules.alias"
    usable = [name for name in claims if not drivers.blocker(name)]
    if usable:
        evidence = [Evidence(aliases, symbol=claims[name], said=name) for name in usable]
        return SAY.fact(f"{some(usable)} claims {device.pci} ({device.name})", *evidence)
    if claims:
        why = [said for name in claims if (said := drivers.blocker(name))]
        what = f"{some(claims)} would drive {device.pci} ({device.name}), but is blocked"
        return SAY.fault(what, *why, hint=UNBLOCK)
    return SAY.fault(
        f"no module of the kernel claims {device.pci} ({device.name})",
        Evidence(aliases),
        hint="check the PCI id, or use a newer kernel or a package with the device's driver",
    )


def known_device(device: Hardware, chip: Chip, drivers: Drivers) -> Iterator[Finding]:
    claims = drivers.kernel.claims(chip.pci)
    whose = f"{chip.pci} ({device.name})"
    aliases = f"{drivers.kernel.folder}/modules.alias"
    present = {name: found for name in chip.modules if (found := drivers.find(name))}
    claiming = {name: found for name, found in present.items() if found in claims}
    blocked = {name: said for name in claiming if (said := drivers.blocker(name))}
    usable = {name: found for name, found in claiming.items() if name not in blocked}
    wanted = " or ".join(chip.modules)
    if not present:
        what = f"the module {wanted}, which drives {whose}, is not in the image"
        hint = f"install {wanted} for {drivers.kernel.release} (from the kernel's package, or the "
        hint += "vendor's with DKMS), and do not prune it"
        yield SAY.fault(what, Evidence(drivers.kernel.folder), hint=hint)
    elif not claiming:
        what = f"{some(present.values())} is in the image, but does not claim {whose}"
        hint = "use a kernel or driver that knows this PCI id, and run depmod after installing it"
        yield SAY.fault(what, Evidence(aliases), hint=hint)
    elif not usable:
        what = f"{some(claiming.values())} would drive {whose}, but is blocked"
        yield SAY.fault(what, *blocked.values(), hint=UNBLOCK)
    for found in usable.values():
        file = drivers.file(found)
        if too_old(drivers.kernel.release, chip.kernel) and not BUILT.intersection(file.split("/")):
            what = f"{found} of Linux {drivers.kernel.release} is too old for {whose}"
            hint = f"use Linux {chip.kernel} or newer"
            yield SAY.fault(what, Evidence(file), hint=hint)
        claim = Evidence(aliases, symbol=claims[found], said=found)
        yield SAY.fact(f"{found} claims {whose}", claim, Evidence(drivers.file(found)))
    if chip.vendor == "NVIDIA":
        yield from rivals(whose, claims, drivers)


def prove_programs(device: Hardware, chip: Chip, drivers: Drivers) -> Iterator[Finding]:
    """Warnings about programs that some machines with a card need."""
    for path, why in chip.programs.items():
        if not drivers.kernel.root.is_file(path):
            what = f"{path}, which {chip.pci} ({device.name}) may need, is not in the image: {why}"
            hint = "if your machines need it, install its package in an overlay of your own"
            yield SAY.warning(what, Evidence(path), hint=hint)


def too_old(release: str, least: str) -> bool:
    return bool(least) and numbers(release) < numbers(least)


def rivals(whose: str, claims: dict[str, str], drivers: Drivers) -> Iterator[Finding]:
    """Findings about the kernel's own drivers for NVIDIA's cards: each must be blocked."""
    aliases = f"{drivers.kernel.folder}/modules.alias"
    for name in RIVALS:
        if name not in claims or drivers.find(name) is None:
            continue
        if said := drivers.blocker(name):
            yield SAY.fact(f"{name} is blocked from {whose}", said)
            continue
        yield SAY.fault(
            f"{name} may claim {whose} before NVIDIA's driver",
            Evidence(aliases, symbol=claims[name], said=name),
            hint=f"blacklist {name} (overlay key modules: blacklist:), or prune it",
        )


def prove_needed(names: Sequence[str], drivers: Drivers) -> Iterator[Finding]:
    """Findings about modules that overlays, or the programs for a device, need by name."""
    kernel = drivers.kernel
    loadable: dict[str, str] = {}
    for name in names:
        found = drivers.find(name)
        path = drivers.file(found) if found else kernel.folder
        if found is None:
            what = f"the module {name} is needed, but is not in the image"
            hint = "install the package that has it for this kernel, and do not prune it"
            yield SAY.fault(what, Evidence(path), hint=hint)
        elif said := drivers.blocker(name):
            yield SAY.fault(f"the module {name} is needed, but is blocked", said, hint=UNBLOCK)
        elif missing := [need for need in kernel.needs(path) if not kernel.root.is_file(need)]:
            what = f"the module {name} cannot be loaded without {some(missing)}"
            hint = "do not prune the modules that it depends on, then run depmod"
            yield SAY.fault(what, Evidence(path), hint=hint)
        else:
            loadable[name] = path
    if loadable:
        what = f"modules that programs need can be loaded: {', '.join(loadable)}"
        yield SAY.fact(what, *(Evidence(path) for path in loadable.values()))
