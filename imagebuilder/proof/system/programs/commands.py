# SPDX-License-Identifier: Apache-2.0
"""What a site's commands do to a node: to its cards, to its packages and drivers, and to folders
that an exporter of Prometheus reads.

What upgrades packages or drivers of a running node makes it another one than was proved: its
libraries no longer fit the kernel and the driver that it booted, and what is written lies in its
memory.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence

from imagebuilder.image.proof import Evidence, Finding, Findings, warning
from imagebuilder.proof.privileges.searched import CRON, SPOOLS
from imagebuilder.proof.privileges.sudo import lines_of
from imagebuilder.proof.reading import scripts
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup, find_loaded, said_in
from imagebuilder.proof.reading.texts import unquoted, whole
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject

NVIDIA_SMI = "nvidia-smi"
# nvidia-smi(1): MIN,MAX or one number, and the clocks of memory and of the processors.
LOCKS = {"-lgc": 1, "--lock-gpu-clocks": 1, "-ac": 1, "--applications-clocks": 1}
# MHz that every card of a target reaches under load: the lowest boost clock that NVIDIA's data
# sheets give for one of them, without those for notebooks and for 75 W.
BOOST = {"sm_70": 1380, "sm_75": 1545, "sm_80": 1410, "sm_86": 1560, "sm_89": 2040, "sm_90": 1755,
         "sm_120": 2280}  # fmt: skip
MUCH_LESS = 0.85
# What resets a card: the program and its words, and files whose reading or writing does so.
RESETS: tuple[tuple[str, frozenset[str]], ...] = (
    (NVIDIA_SMI, frozenset(("-r", "--gpu-reset"))),
    ("rocm-smi", frozenset(("--gpureset",))),
    ("amd-smi", frozenset(("-G", "--gpureset"))),
    ("xpu-smi", frozenset(("--reset",))),
)
RESET_FILES = re.compile(
    r"amdgpu_gpu_recover\b|i915_wedged\b|/forcereset_\w+"
    r"|/sys/[\w./*:${}-]{0,200}?(?:/drm/|amdgpu|nvidia|i915|/xe/)[\w./*:${}-]{0,200}?/(?:reset|remove)\b"
)
COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
STOPS = frozenset(("stop", "restart", "isolate", "kill"))
EXPORTERS = ("prometheus-node-exporter", "node_exporter", "node-exporter")
OPTION = "--collector.textfile.directory"
# Debian's exporter reads this folder without the option, others read none.
DEBIANS = "/var/lib/prometheus/node-exporter"
WRITTEN = re.compile(r"(?<![\w./-])(/[\w.+/-]{1,200})/[\w.+${}-]{1,100}\.prom\b")
# Self-extracting archives of NVIDIA, AMD and others, and programs that install drivers.
INSTALLERS = re.compile(r".+\.run|nvidia-installer|amdgpu-install|ubuntu-drivers|mlnxofedinstall")
NOT_INSTALLING = frozenset(("--version", "--help", "--info", "--list", "--check", "--extract-only",
                            "-x", "-h", "list", "devices", "debug"))  # fmt: skip
MOST_FIELDS = 100  # of a line of cron; the command is among the first
HINT = "remove it; to get new packages, lock and build the image again (nightly does both)"


def prove_card_tools(subject: Subject) -> Findings:
    """Warnings: a site may want either."""
    for command in scripts.unit_commands(subject):
        yield from prove_clocks(subject, command)
    yield from prove_resets(subject)


def prove_clocks(subject: Subject, command: scripts.UnitCommand) -> Findings:
    """A warning of a limit far below what the cards of the profile reach."""
    boosts = [BOOST[target] for target in subject.targets if target in BOOST]
    if command.program != NVIDIA_SMI or not boosts:
        return
    for option in options_of(command.words, LOCKS):
        values = [whole(each.strip()) for each in option.value.split(",")]
        most = values[-1] if values else -1
        if 0 < most < MUCH_LESS * min(boosts):
            what = f"{command.said} locks the clocks of the cards to at most {most} MHz "
            what += f"({option.name}): cards of {' and '.join(subject.targets)} reach "
            what += f"{min(boosts)} MHz or more, and compute that much slower"
            hint = "remove it, or set a limit for this card (nvidia-smi -q -d SUPPORTED_CLOCKS)"
            yield warning(what, command.evidence, hint=hint)


def prove_resets(subject: Subject) -> Findings:
    """Warnings of timers that reset the cards below a running service.

    What starts at boot alone may reset a card before anything uses it.
    """
    engines = [name for name in subject.expectations.units if find_loaded(subject.startup, name)]
    commands, told = scripts.unit_commands(subject), set[str]()
    for command in commands:
        unit = command.unit
        timers = [each for each in unit.firsts("TriggeredBy") if each.endswith(".timer")]
        how = reset_of(command)
        if not timers or not how or unit.name in told or not subject.chips:
            continue
        told.add(unit.name)
        using = [name for name in engines if not is_stopped(name, unit, commands)]
        if using or not engines:
            users = f"while {using[0]} may use them" if using else "whatever uses them"
            what = f"{timers[0]} resets the cards ({how}), {users}: programs on a card lose their "
            what += "work and what they keep in its memory"
            hint = "remove it, or stop what uses the cards first"
            yield warning(what, command.evidence, hint=hint)


def reset_of(command: scripts.UnitCommand) -> str:
    """How a command, or the script that it is in, resets a card; "" if it does not."""
    for program, words in RESETS:
        if command.program == program and words & set(command.words):
            return " ".join(command.words[:3]).strip()
    text = COMMENT.sub("", command.script.text) if command.script else " ".join(command.words)
    found = RESET_FILES.search(text)
    return found[0].rpartition("/")[2] if found else ""


def is_stopped(name: str, unit: LoadedUnit, commands: Sequence[scripts.UnitCommand]) -> bool:
    stem = name.removesuffix(".service")
    if name in unit.words("Conflicts"):
        return True
    return any(
        each.unit.name == unit.name
        and each.program == "systemctl"
        and bool(STOPS & set(each.words))
        and bool({name, stem} & set(each.words))
        for each in commands
    )


def prove_readings(subject: Subject) -> Findings:
    """A warning for each folder to which readings are written and that the node exporter does not
    read, unless another program of the image is told of it.

    It reads files NAME.prom in the folders of --collector.textfile.directory, and says nothing of
    others (README of prometheus/node_exporter, "Textfile Collector").
    """
    exporters = [each for name in EXPORTERS for each in scripts.services_of(subject, name)]
    if not exporters:
        return
    read = [folder for each in exporters for folder in folders_of(subject, each)]
    told: set[str] = set()
    for command in scripts.unit_commands(subject):
        for folder in dict.fromkeys(f for text in command.texts for f in WRITTEN.findall(text)):
            if folder in told or any(fnmatch.fnmatchcase(folder, each) for each in read):
                continue
            told.add(folder)
            if not is_read_elsewhere(subject.startup, folder, command):
                listed = ", ".join(dict.fromkeys(read)) or "no folder"
                what = f"nobody collects what {command.said} writes to {folder}: "
                what += f"{exporters[0].name} reads {listed}"
                where = (Evidence(command.evidence.path, said=folder), exporters[0].evidence)
                yield warning(what, *where, hint=f"write to that folder, or set {OPTION}={folder}")


def folders_of(subject: Subject, exporter: scripts.SiteService) -> list[str]:
    """The folders that an exporter reads, as globs."""
    words = [part for word in exporter.words for part in (unquoted(word) or [word])]
    told = [option.value for option in options_of(words, (OPTION,)) if option.value]
    if not told:
        program = find_program(subject.root, exporter.written[0])
        content = (subject.root.map(program) if program else None) or b""
        told = [DEBIANS] if content.find(DEBIANS.encode()) >= 0 else []
    return [posixpath.normpath(each) for each in told]


def is_read_elsewhere(startup: Startup, folder: str, writer: scripts.UnitCommand) -> bool:
    """Whether the command line of another service names a folder."""
    return any(
        folder in word
        for unit in startup.starting()
        if unit.name != writer.unit.name
        for words in unit.lines
        for word in words
    )


def prove_upgrades(subject: Subject) -> Findings:
    for unit in subject.startup.starting():
        for key, words in unit.started():
            where = said_in(subject.root, unit, key)
            yield from prove_upgrade(subject, unit.name, words, where)
    for line in lines_of(subject.root, (*CRON, *SPOOLS)):
        fields = line.text.split(maxsplit=MOST_FIELDS)[:MOST_FIELDS]
        if any(subject.family.is_upgrade(fields[place:]) for place in range(len(fields))):
            where = Evidence(line.path, said=f"line {line.number}")
            yield upgrades(f"{line.path} runs {' '.join(fields)}", where)
    if path := subject.family.find_upgrading(subject.root):
        yield upgrades(f"{path} lets timers upgrade packages", Evidence(path))


def prove_upgrade(subject: Subject, said: str, words: Sequence[str], where: Evidence) -> Findings:
    if subject.family.is_upgrade(words) or is_installer(words):
        yield upgrades(f"{said} runs {' '.join(words)}", where)


def is_installer(words: Sequence[str]) -> bool:
    """Whether a command is a vendor's installer of a driver, which replaces the image's own."""
    command = scripts.behind_env(words)
    name = posixpath.basename(command[0]) if command else ""
    if scripts.runs(scripts.SHELL, command):
        first = next((word for word in command[1:] if not word.startswith("-")), "")
        name = posixpath.basename(first)
    return INSTALLERS.fullmatch(name) is not None and not set(command) & NOT_INSTALLING


def upgrades(what: str, where: Evidence) -> Finding:
    effect = "the node is then no longer the image that was proved"
    return warning(f"{what}: {effect}", where, hint=HINT)
