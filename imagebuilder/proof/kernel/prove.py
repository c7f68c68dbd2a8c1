# SPDX-License-Identifier: Apache-2.0
"""Question 1: one kernel with matching modules, and a driver for each device of the profile that
nothing blocks, by the own modprobe(8) of the image, its indexes (`modules.*.bin`) and
modprobe.d(5).
"""

from __future__ import annotations

import fnmatch
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.process import Completed
from imagebuilder.proof.kernel import built
from imagebuilder.proof.kernel.options import prove_words
from imagebuilder.proof.reading.config import CMDLINE
from imagebuilder.proof.reading.modules import FOLDER, Kernel, matches_alias, module_name, plain
from imagebuilder.proof.reading.parameters import ModuleSettings, config_lines, read_settings
from imagebuilder.proof.say import prove_answered, some, why_unanswered
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.agreement import numbers
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root

# Documentation/arch/x86/boot.rst of Linux: a magic number, and the offset of the version's text
# from the end of the first sector.
MAGIC_AT, MAGIC, VERSION_AT, SECTOR = 0x202, b"HdrS", 0x20E, 0x200
# Other drivers that claim NVIDIA's cards: the first loaded module gets the card.
RIVALS = ("nouveau", "nova_core", "nvidiafb")
# These drive no device if the command line contains `nomodeset`.
KMS = frozenset({"amdgpu", "i915", "xe", "nouveau", "radeon"})
# Folders of modules that are not from the kernel's own tree.
BUILT = frozenset(("updates", "extra"))
UNBLOCK = "remove that line, or remove the device from hardware: if the image is not for it"
MODPROBE = ("/usr/sbin/modprobe", "/usr/bin/modprobe")
INSTEAD = re.compile(r"modprobe\s+.{0,400}?(?:-i|--ignore-install)\s+([\w-]+)")


def prove_kernel(subject: Subject) -> Findings:
    if not subject.kernel:
        return
    yield from one_kernel(subject)
    drivers = drivers_of(subject)
    if not subject.root.is_dir(drivers.kernel.folder):
        return
    needed = needed_files(subject, drivers)
    shipped = built.find_shipped(subject, drivers.kernel)
    yield from built.prove_built(drivers.kernel, needed, shipped)
    # Modules that the kernel's packages shipped fit together.
    if not shipped.issuperset(needed):
        yield from built.prove_content(drivers.kernel, needed, subject.cmdline)
    yield from built.prove_dependencies(drivers.kernel)
    yield from built.prove_dkms(drivers.kernel)
    yield from built.prove_signed(drivers.kernel, subject.cmdline)
    yield from prove_devices(subject, drivers)
    yield from prove_loading(subject, drivers)
    yield from prove_nics(drivers)
    yield from prove_words(subject)


def one_kernel(subject: Subject) -> Findings:
    root, release = subject.root, subject.kernel
    # Removing a kernel's package leaves folders in which other packages had files.
    folders = [name for name in root.names(FOLDER) if root.names(f"{FOLDER}/{name}")]
    images = root.glob("/boot/vmlinuz-*")
    others = [name for name in folders if name != release]
    others += [p for p in images if p.rpartition("/")[2] != f"vmlinuz-{release}"]
    if release not in folders:
        what = f"the image boots {release}, but does not have its modules"
        what += f"; it has {some(folders)}" if folders else ""
        hint = "install the modules of that kernel, or name the other one in the recipe's base"
        yield fault(what, Evidence(f"{FOLDER}/{release}"), hint=hint)
        return
    if others:
        yield fault(
            f"the image boots {release}, but also has {some(others)}",
            *(Evidence(n if n.startswith("/") else f"{FOLDER}/{n}") for n in others),
            hint="install only one kernel: with two, DKMS and depmod may use the wrong one",
        )
    for path in (f"{FOLDER}/{release}/vmlinuz", f"/boot/vmlinuz-{release}"):
        if root.is_file(path):
            yield kernel_image(root, path, release)
            return
    hint = "install the package that has the kernel itself, and do not prune it"
    yield fault(f"the image has no vmlinuz of {release}", Evidence("/boot"), hint=hint)


def kernel_image(root: Root, path: str, release: str) -> Finding:
    """The finding about the file of the kernel, which contains its release on x86."""
    said = version_of_kernel(root.read(path) or b"")
    where = Evidence(path, "setup header", "kernel_version", said)
    if said and said.split()[0] != release:
        what = f"{path} is the kernel {said.split()[0]}, not {release}"
        return fault(what, where, hint="install vmlinuz and modules from one kernel package")
    return fact(f"one kernel, {release}", where)


def version_of_kernel(image: bytes) -> str:
    """The version in the header of a kernel for x86, "" for other kernels."""
    if image[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
        return ""
    (offset,) = struct.unpack_from("<H", image, VERSION_AT)
    text = image[offset + SECTOR :][:256].partition(b"\0")[0]
    return text.decode(errors="replace").strip() if offset else ""


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


def prove_devices(subject: Subject, drivers: Drivers) -> Findings:
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
        return fact(f"{some(usable)} claims {device.pci} ({device.name})", *evidence)
    if claims:
        why = [said for name in claims if (said := drivers.blocker(name))]
        what = f"{some(claims)} would drive {device.pci} ({device.name}), but is blocked"
        return fault(what, *why, hint=UNBLOCK)
    what = f"no module of the kernel claims {device.pci} ({device.name})"
    hint = "check the PCI id, or use a newer kernel or a package with the device's driver"
    return fault(what, Evidence(aliases), hint=hint)


def known_device(device: Hardware, chip: Chip, drivers: Drivers) -> Findings:
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
        yield fault(what, Evidence(drivers.kernel.folder), hint=hint)
    elif not claiming:
        what = f"{some(present.values())} is in the image, but does not claim {whose}"
        hint = "use a kernel or driver that knows this PCI id, and run depmod after installing it"
        yield fault(what, Evidence(aliases), hint=hint)
    elif not usable:
        what = f"{some(claiming.values())} would drive {whose}, but is blocked"
        yield fault(what, *blocked.values(), hint=UNBLOCK)
    for found in usable.values():
        file = drivers.file(found)
        is_old = chip.kernel and numbers(drivers.kernel.release) < numbers(chip.kernel)
        if is_old and not BUILT.intersection(file.split("/")):
            what = f"{found} of Linux {drivers.kernel.release} is too old for {whose}"
            yield fault(what, Evidence(file), hint=f"use Linux {chip.kernel} or newer")
        claim = Evidence(aliases, symbol=claims[found], said=found)
        yield fact(f"{found} claims {whose}", claim, Evidence(drivers.file(found)))
    if chip.vendor == "NVIDIA":
        yield from rivals(whose, claims, drivers)


def prove_programs(device: Hardware, chip: Chip, drivers: Drivers) -> Findings:
    for path, why in chip.programs.items():
        if not drivers.kernel.root.is_file(path):
            what = f"{path}, which {chip.pci} ({device.name}) may need, is not in the image: {why}"
            hint = "if your machines need it, install its package in an overlay of your own"
            yield warning(what, Evidence(path), hint=hint)


def rivals(whose: str, claims: dict[str, str], drivers: Drivers) -> Findings:
    """Findings about the kernel's own drivers for NVIDIA's cards: each must be blocked."""
    aliases = f"{drivers.kernel.folder}/modules.alias"
    for name in RIVALS:
        if name not in claims or drivers.find(name) is None:
            continue
        if said := drivers.blocker(name):
            yield fact(f"{name} is blocked from {whose}", said)
            continue
        what = f"{name} may claim {whose} before NVIDIA's driver"
        hint = f"blacklist {name} (overlay key modules: blacklist:), or prune it"
        yield fault(what, Evidence(aliases, symbol=claims[name], said=name), hint=hint)


def prove_needed(names: Sequence[str], drivers: Drivers) -> Findings:
    kernel = drivers.kernel
    loadable: dict[str, str] = {}
    for name in names:
        found = drivers.find(name)
        path = drivers.file(found) if found else kernel.folder
        if found is None:
            what = f"the module {name} is needed, but is not in the image"
            hint = "install the package that has it for this kernel, and do not prune it"
            yield fault(what, Evidence(path), hint=hint)
        elif said := drivers.blocker(name):
            yield fault(f"the module {name} is needed, but is blocked", said, hint=UNBLOCK)
        elif missing := [need for need in kernel.needs(path) if not kernel.root.is_file(need)]:
            what = f"the module {name} cannot be loaded without {some(missing)}"
            hint = "do not prune the modules that it depends on, then run depmod"
            yield fault(what, Evidence(path), hint=hint)
        else:
            loadable[name] = path
    if loadable:
        what = f"modules that programs need can be loaded: {', '.join(loadable)}"
        yield fact(what, *(Evidence(path) for path in loadable.values()))


@dataclass(frozen=True)
class Loading:
    """What modprobe said: the modules that are loaded, and the commands that run instead of one."""

    said: Completed
    modules: frozenset[str]
    commands: tuple[str, ...]


def prove_nics(drivers: Drivers) -> Findings:
    """Warnings of drivers of wired NICs that are kept off, if no other module may replace them."""
    kept = {**drivers.settings.blacklisted, **drivers.settings.never}
    folder = f"{drivers.kernel.folder}/kernel/drivers/net/ethernet/"
    names = [name for name in kept if drivers.kernel.by_name.get(name, "").startswith(folder)]
    for name in names if not any("/net/" in path for path in drivers.kernel.outside) else ():
        what = f"{name}, a driver of wired NICs, is blocked: nodes with such a NIC have no network"
        yield warning(what, kept[name], hint="remove that line if a node has such a NIC")


def prove_loading(subject: Subject, drivers: Drivers) -> Findings:
    program = next((path for path in MODPROBE if subject.root.is_file(path)), None)
    if program is None:
        return
    for device in subject.hardware:
        chip = chip_of(device)
        if chip is None or not drivers.usable(chip):
            continue
        wanted = set(drivers.of(chip))
        loading = load_instead(subject, program, drivers, chip.pci, wanted)
        if loading is None:
            continue
        if why_unanswered(loading.said):
            unread = f"which modules {program} loads for {chip.pci}"
            yield from prove_answered(loading.said, unread, Evidence(program))
            continue
        names = " or ".join(sorted(wanted))
        where = Evidence(f"{drivers.kernel.folder}/modules.alias.bin")
        hint = "run depmod for this kernel after the last change of its modules"
        why = "its index does not list it"
        for path, line in config_lines(subject):
            if takes(line, drivers.kernel.aliases_of(chip.pci)):
                why = f"an alias assigns it to {line.split()[2]}"
                where, hint = Evidence(path, said=line), "remove that line"
        if loading.commands:
            why = f"it runs {loading.commands[0]} instead"
            where, hint = Evidence("/etc/modprobe.d", said=loading.commands[0]), "remove that line"
        what = f"modprobe does not load {names} for {chip.pci} ({device.name}): {why}"
        yield fault(what, where, hint=hint)


def load_instead(
    subject: Subject, program: str, drivers: Drivers, pci: str, wanted: set[str]
) -> Loading | None:
    """What is loaded instead of the wanted modules, None if they are loaded.

    The class of the device is unknown, and an alias may be for one class: modprobe is run for each
    class for which the image has a wanted module.
    """
    claims = [alias for alias, module in drivers.kernel.aliases if module in wanted]
    for name in drivers.kernel.aliases_of(pci):
        if not any(matches_alias(name, alias) for alias in claims):
            continue
        loading = run_modprobe(subject, program, name)
        if not wanted & (loading.modules | drivers.kernel.builtin):
            return loading
    return None


def takes(line: str, aliases: Iterable[str]) -> bool:
    """Whether a line of modprobe.d(5) assigns a device to a module by an alias with wildcards."""
    words = line.split()
    is_alias = len(words) > 2 and words[0] == "alias"
    return is_alias and any(fnmatch.fnmatchcase(alias, words[1]) for alias in aliases)


def run_modprobe(subject: Subject, program: str, alias: str) -> Loading:
    options = ["--set-version", subject.kernel, "--use-blacklist", "--show-depends"]
    said = subject.run([program, "--all", "--quiet", *options, alias])
    modules: set[str] = set()
    commands: list[str] = []
    for line in said.stdout.splitlines():
        verb, _, rest = line.strip().partition(" ")
        if verb == "insmod" and rest:
            modules.add(module_name(rest.split()[0]))
        elif verb == "builtin":
            modules.add(plain(rest.strip()))
        elif verb == "install":
            modules |= {plain(name) for name in INSTEAD.findall(rest)}
            commands.append(rest.strip())
    return Loading(said, frozenset(modules), tuple(commands))
