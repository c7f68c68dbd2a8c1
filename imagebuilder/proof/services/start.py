# SPDX-License-Identifier: Apache-2.0
"""Whether a service starts on the nodes it is for, and who else starts its engine."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.access.units import FOLDERS
from imagebuilder.proof.fallback.guard import PLAIN
from imagebuilder.proof.services import SAY
from imagebuilder.proof.services.confinement import said_in
from imagebuilder.proof.services.environment import (
    Environment,
    expanded,
    files_of,
    ignored_lines,
)
from imagebuilder.proof.services.settings import CommandLine
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.systemd import LoadedUnit, Startup
from imagebuilder.recipe.engines import EngineKind

# What of the tree is the same on every node, as against /run, /proc, /sys, /dev and a node's disk.
# A node may have files of its own in /etc.
FIXED = ("/usr/", "/opt/")
PATHS = ("PathExists", "PathIsDirectory", "FileNotEmpty", "FileIsExecutable", "PathExistsGlob")
GUARDS = ("ExecCondition", "ExecStartPre")
# Empty at boot, whatever the image has there.
VOLATILE = ("/run/", "/var/run/")
# What ProtectHome= takes from a service (systemd.exec(5)).
HOMES = ("/home/", "/root/", "/run/user/")
HIDDEN = ("yes", "true", "on", "1", "tmpfs")
# Where what writes a file at boot would be told to.
UNITS = ("/etc/systemd", "/usr/lib/systemd/system", "/usr/local/lib/systemd")
WRITERS = (*UNITS, "/etc", "/usr/local", "/usr/libexec", "/usr/lib/tmpfiles.d")
# Of services that set none (systemd.exec(5)).
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"


def prove_conditions(subject: Subject, unit: LoadedUnit) -> Iterator[Finding]:
    """Faults of conditions and asserts that no node of the profile meets."""
    alternatives: list[tuple[str, str, bool]] = []
    for key in unit.values:
        kind = key.removeprefix("Condition").removeprefix("Assert")
        if kind == key:
            continue
        for value in unit.every(key):
            text = value.rpartition(" ")[0] or value
            negated, trigger = "!" in text[:2], text.startswith("|")
            why = unmet(subject, kind, text.lstrip("|!"), negated=negated)
            if trigger:
                alternatives.append((key, why, bool(why)))
            elif why:
                yield never(subject, unit, key, why)
    if alternatives and all(failed for _, _, failed in alternatives):
        yield never(subject, unit, *alternatives[0][:2])


def never(subject: Subject, unit: LoadedUnit, key: str, why: str) -> Finding:
    return SAY.fault(
        f"{unit.name} never starts: {why}",
        said_in(subject.root, unit, key),
        hint="remove that condition; what looks for the device is an ExecStartPre= that fails "
        "without it",
    )


def unmet(subject: Subject, kind: str, value: str, *, negated: bool) -> str:
    """Why no node meets a condition, "" where one may."""
    shown = f"{kind}={'!' if negated else ''}{value}"
    if kind in PATHS and value.startswith("/dev/") and not negated:
        nodes = [device.path for device in subject.expectations.devices]
        vendors = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel")
        if value.startswith(vendors) and not any(same(node, value) for node in nodes):
            return f"the devices of the profile have no {value} (Condition{shown})"
    if kind in PATHS and value.startswith((*FIXED, "/etc/")):
        there = bool(subject.root.glob(value)) if "*" in value else subject.root.lies(value)
        if there == negated and (there or value.startswith(FIXED)):
            return f"{value} {'is' if there else 'is not'} in the image (Condition{shown})"
    if kind == "Virtualization":
        real = value.lower() in ("no", "false", "0", "off") or value.startswith("private-users")
        if real == negated:
            return f"a node is a real machine (Condition{shown})"
    if kind == "KernelModuleLoaded" and not negated and not known(subject, value):
        return f"no overlay needs the module {value} (Condition{shown})"
    return ""


def prove_files(subject: Subject, unit: LoadedUnit, environment: Environment) -> Iterator[Finding]:
    """Faults of files without which systemd does not start the unit, and that no node has."""
    for value in unit.every("EnvironmentFile"):
        path = value.partition(" (")[0]
        is_there = subject.root.is_file(path) and not path.startswith(VOLATILE)
        if not path.startswith("/") or "*" in path or is_there:
            continue
        if path.startswith((*VOLATILE, *FIXED)) and not made(subject, unit, path):
            lies = subject.root.is_file(path)
            where = "lies where nothing is left at boot" if lies else "is not in the image"
            yield SAY.fault(
                f"{unit.name} never starts: it requires {path}, which {where}, and "
                "nothing in the image makes it",
                said_in(subject.root, unit, "EnvironmentFile"),
                hint=f"bring what writes it, or let it be missing: EnvironmentFile=-{path}",
            )
    for words in unit.commands.get("ExecCondition", ()):
        asked = expanded(words, environment)
        path = asked[-1] if len(asked) > 1 else ""
        tests = posixpath.basename(asked[0]) == "test" and "!" not in asked and path[:1] == "/"
        folder = posixpath.dirname(path)
        if tests and (key := hiding(unit, path)):
            yield SAY.fault(
                f"{unit.name} never starts: it looks for {path}, which {key}= hides from it",
                said_in(subject.root, unit, key),
                *(v.evidence(name) for name, v in environment.items() if v.value == path),
                hint=f"put it elsewhere, such as below /models, or change {key}=",
            )
        elif tests and not subject.root.is_dir(folder) and not is_given(subject, path):
            yield SAY.fault(
                f"{unit.name} never starts: it looks for {path}, and {folder} is neither in the "
                "image nor on a disk that it mounts",
                said_in(subject.root, unit, "ExecCondition"),
                *(v.evidence(name) for name, v in environment.items() if v.value == path),
                hint="name a path below a mount point of the image, such as /models",
            )


def prove_lines(subject: Subject, unit: LoadedUnit) -> Iterator[Finding]:
    """Faults of lines of its EnvironmentFile= that set a variable in a shell alone."""
    for path in files_of(subject.root, unit):
        if ignored := ignored_lines(subject.root.text(path)):
            # Without the value, which may be a secret.
            first = ignored[0].partition("=")[0].strip()
            yield SAY.fault(
                f"systemd ignores {first!r} of {path}: {unit.name} does not get that variable",
                Evidence(path, said=f"{first}="),
                hint="NAME=VALUE, without export: EnvironmentFile= is no script of a shell",
            )


def hiding(unit: LoadedUnit, path: str) -> str:
    """The setting of a unit that makes a path unreachable for its programs, "" for none."""
    bound = (*unit.words("BindPaths"), *unit.words("BindReadOnlyPaths"))
    shown = [word.lstrip("-").split(":") for word in bound]
    if any(path.startswith((parts[1:2] or parts)[0]) for parts in shown):
        return ""
    if path.startswith(HOMES) and unit.one("ProtectHome").lower() in HIDDEN:
        return "ProtectHome"
    for key in ("InaccessiblePaths", "TemporaryFileSystem"):
        places = [word.lstrip("-+").partition(":")[0] for word in unit.words(key)]
        if any(place and path.startswith(f"{place.rstrip('/')}/") for place in places):
            return key
    return ""


def made(subject: Subject, unit: LoadedUnit, path: str) -> bool:
    """Whether a file of the image, other than the unit's own, mentions the folder of a path."""
    folder = posixpath.dirname(path)
    said = subject.ask(["grep", "-rlsF", "-e", folder, *WRITERS]).stdout.split()
    name = folder.removeprefix("/run/")
    runtime = subject.ask(
        ["grep", "-rlsE", "-e", f"^RuntimeDirectory=(.* )?{re.escape(name)}( |$)", *UNITS]
    )
    return bool(set(said) - set(unit.paths)) or bool(runtime.stdout.split())


def is_given(subject: Subject, path: str) -> bool:
    """Whether a node has a path that the image lacks: at boot, or on a disk that is mounted."""
    if path.startswith(("/run/", "/dev/", "/proc/", "/sys/", "/tmp/", "/etc/")):
        return True
    lines = [line.split() for line in subject.root.text("/etc/fstab").splitlines()]
    places = [words[1] for words in lines if len(words) > 2 and words[1] != "/"]
    for folder in FOLDERS:
        for unit in subject.root.glob(f"{folder}/*.mount"):
            places += re.findall(r"^Where=(/.+)$", subject.root.text(unit), re.MULTILINE)
    return any(path.startswith(f"{place.rstrip('/')}/") for place in places)


def prove_program(subject: Subject, line: CommandLine, kind: EngineKind) -> Iterator[Finding]:
    """Faults of a service that runs another program than the one that lists the devices."""
    command = kind.model.devices.command if kind.model.devices else []
    if not command or not line.words:
        return
    program, name = command[0], posixpath.basename(command[0])
    others = [w for w in line.words if posixpath.basename(w) == name and w[0] == "/"]
    others = [word for word in others if word != program and not same_file(subject, word, program)]
    hint = f"let the unit start {program}, and let nothing else have its name"
    if others:
        what = f"{line.unit} starts {others[0]}, not {program}: what the look for the device and "
        what += "the proof say is of another program"
        yield SAY.fault(what, Evidence(line.path, said=" ".join(line.words)), hint=hint)
        return
    search = line.environment.get("PATH")
    for folder in (search.value if search else PATH).split(":"):
        path = f"{folder}/{name}"
        if same_file(subject, path, program):
            return
        if subject.root.is_file(path):
            what = f"{path} comes before {program} in PATH: a look for the device that asks by "
            what += f"name asks another program than {line.unit} runs"
            yield SAY.fault(what, Evidence(path), hint=hint)
            return


def same_file(subject: Subject, one: str, other: str) -> bool:
    """Whether two paths lead to one file."""
    found = subject.root.resolve(one)
    return one == other or (found is not None and found == subject.root.resolve(other))


def known(subject: Subject, module: str) -> bool:
    names = {name.replace("-", "_") for name in subject.expectations.modules}
    return module.replace("-", "_") in names


def same(node: str, value: str) -> bool:
    """Whether a device node (path or glob) is, or lies below, the path of a condition."""
    return fnmatch.fnmatchcase(value, node) or node == value or node.startswith(f"{value}/")


def prove_others(
    subject: Subject, startup: Startup, unit: LoadedUnit, program: str
) -> Iterator[Finding]:
    """Faults of other units that start the engine without the look for the device."""
    guards = {words for key in GUARDS for words in unit.commands.get(key, ()) if looks(words)}
    seen: set[str] = set()
    for other in startup.units.values():
        declared = {s.unit for s in subject.expectations.services}
        starts = other.name in startup.jobs or other.every("TriggeredBy")
        if other.name == unit.name or other.name in declared | seen or not starts:
            continue
        seen.add(other.name)
        own = {words for key in GUARDS for words in other.commands.get(key, ())}
        if not any(runs(words, program) for words in other.commands.get("ExecStart", ())):
            continue
        if not guards & own:
            yield SAY.fault(
                f"{other.name} also starts {posixpath.basename(program)}, without the look for "
                f"the device that {unit.name} has: it computes on the processor and nobody notices",
                said_in(subject.root, other, "ExecStart"),
                hint=f"disable it, or give it the ExecStartPre= of {unit.name}",
            )


def looks(words: Sequence[str]) -> bool:
    return bool(words) and posixpath.basename(words[0]) not in PLAIN


def runs(words: Sequence[str], program: str) -> bool:
    """Whether a command line names a program, itself or in the text of a shell."""
    name = posixpath.basename(program)
    return any(name in part.split("/") for word in words for part in word.split())
