# SPDX-License-Identifier: Apache-2.0
"""What modprobe(8) of the image would load for each device: its own reading of the indexes that it
uses (`modules.*.bin`) and of modprobe.d(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.kernel.devices import Drivers
from imagebuilder.proof.kernel.modules import module_name
from imagebuilder.proof.kernel.settings import plain
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.hardware import chip_of

SAY = Say(Question.KERNEL)
MODPROBE = ("/usr/sbin/modprobe", "/usr/bin/modprobe")
INSTEAD = re.compile(r"modprobe\s+.*?(?:-i|--ignore-install)\s+([\w-]+)")


@dataclass(frozen=True)
class Loading:
    """The modules that are loaded, and the commands that are run in the place of one."""

    modules: frozenset[str]
    commands: tuple[str, ...]


def prove_loading(subject: Subject, drivers: Drivers) -> Iterator[Finding]:
    """Faults of devices whose driver the files have, and modprobe does not load."""
    program = next((path for path in MODPROBE if subject.root.is_file(path)), None)
    if program is None:
        return
    for device in subject.hardware:
        chip = chip_of(device)
        if chip is None or not drivers.usable(chip):
            continue
        loading = ask_modprobe(subject, program, drivers.kernel.aliases_of(chip.pci))
        wanted = set(drivers.of(chip))
        if wanted & (loading.modules | drivers.kernel.builtin):
            continue
        names = " or ".join(sorted(wanted))
        where = Evidence(f"{drivers.kernel.folder}/modules.alias.bin")
        hint = "run depmod for this kernel after the last change of its modules"
        why = "its index does not name it"
        if loading.commands:
            why = f"it runs {loading.commands[0]}"
            where, hint = Evidence("/etc/modprobe.d", said=loading.commands[0]), "remove that line"
        what = f"modprobe does not load {names} for {chip.pci} ({device.name}): {why}"
        yield SAY.fault(what, where, hint=hint)


def ask_modprobe(subject: Subject, program: str, aliases: list[str]) -> Loading:
    """What is loaded for any of some aliases, blacklists applied."""
    options = ["--set-version", subject.kernel, "--use-blacklist", "--show-depends"]
    said = subject.ask([program, "--all", "--quiet", *options, *aliases]).stdout
    modules: set[str] = set()
    commands: list[str] = []
    for line in said.splitlines():
        verb, _, rest = line.strip().partition(" ")
        if verb == "insmod" and rest:
            modules.add(module_name(rest.split()[0]))
        elif verb == "builtin":
            modules.add(plain(rest.strip()))
        elif verb == "install":
            modules |= {plain(name) for name in INSTEAD.findall(rest)}
            commands.append(rest.strip())
    return Loading(frozenset(modules), tuple(commands))
