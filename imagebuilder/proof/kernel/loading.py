# SPDX-License-Identifier: Apache-2.0
"""What the image's own modprobe(8) would load for each device, by its indexes (`modules.*.bin`) and
modprobe.d(5).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.process import Completed
from imagebuilder.proof.kernel.devices import Drivers
from imagebuilder.proof.reading.modprobe import config_lines
from imagebuilder.proof.reading.modules import matches_alias, module_name, plain
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.unanswered import prove_answered, why_unanswered
from imagebuilder.recipe.hardware import chip_of

SAY = Say(Question.KERNEL)
MODPROBE = ("/usr/sbin/modprobe", "/usr/bin/modprobe")
WIRED = "kernel/drivers/net/ethernet/"
INSTEAD = re.compile(r"modprobe\s+.{0,400}?(?:-i|--ignore-install)\s+([\w-]+)")


@dataclass(frozen=True)
class Loading:
    """What modprobe said: the modules that are loaded, and the commands that run instead of one."""

    said: Completed
    modules: frozenset[str]
    commands: tuple[str, ...]


def prove_nics(drivers: Drivers) -> Iterator[Finding]:
    """Warnings of drivers of wired NICs that are kept off, unless a module of another origin is
    there, which may be meant to take their place.
    """
    kept = {**drivers.settings.blacklisted, **drivers.settings.never}
    folder = f"{drivers.kernel.folder}/{WIRED}"
    names = [name for name in kept if drivers.kernel.by_name.get(name, "").startswith(folder)]
    for name in names if not any("/net/" in path for path in drivers.kernel.outside) else ():
        what = f"{name}, a driver of wired NICs, is blocked: nodes with such a NIC have no network"
        yield SAY.warning(what, kept[name], hint="remove that line if a node has such a NIC")


def prove_loading(subject: Subject, drivers: Drivers) -> Iterator[Finding]:
    """Faults of devices whose driver is in the image, but is not loaded by modprobe."""
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
            yield from prove_answered(SAY, loading.said, unread, Evidence(program))
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
        yield SAY.fault(what, where, hint=hint)


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
