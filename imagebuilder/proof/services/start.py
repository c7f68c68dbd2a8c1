# SPDX-License-Identifier: Apache-2.0
"""Whether a service starts on the profile's nodes, and what else starts its engine."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence

from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.reading.commands import GUARDS, PLAIN, CommandLine, run_guards
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.environment import (
    Environment,
    expanded,
    files_of,
    ignored_lines,
    remarks,
    unclosed,
)
from imagebuilder.proof.reading.modules import plain
from imagebuilder.proof.reading.mounts import find_mounts, merged_files, mount_of
from imagebuilder.proof.reading.nodes import find_family
from imagebuilder.proof.reading.systemd import LoadedUnit, said_in
from imagebuilder.proof.reading.units import BINARIES, find_unit, is_below, unit_paths
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.recipe.expectations import Device
from imagebuilder.root import Root

# Folders that are the same on every node; a node may have files of its own in /etc.
FIXED = ("/usr/", "/opt/")
IN_IMAGE = (*FIXED, "/bin/", "/sbin/", "/lib/", "/lib64/")
PATHS = ("PathExists", "PathIsDirectory", "FileNotEmpty", "FileIsExecutable", "PathExistsGlob")
# Empty at boot, even if the image has files there.
VOLATILE = ("/run/", "/var/run/")
# Folders that ProtectHome= hides from a service (systemd.exec(5)).
HOMES = ("/home/", "/root/", "/run/user/")
# Where configuration that creates a file at boot would be.
UNITS = ("/etc/systemd", "/usr/lib/systemd/system", "/usr/local/lib/systemd")
WRITERS = (*UNITS, "/etc", "/usr/local", "/usr/libexec", "/usr/lib/tmpfiles.d")
MOST_CHECKS = 20  # services whose own checks are run, which may take minutes each
# The default of services (systemd.exec(5)).
PATH = ":".join(BINARIES)


def prove_conditions(subject: Subject, unit: LoadedUnit) -> Findings:
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
    what = f"{unit.name} never starts: {why}"
    hint = "remove that condition; check for the device with an ExecStartPre= that fails "
    hint += "without it"
    return fault(what, said_in(subject.root, unit, key), hint=hint)


def unmet(subject: Subject, kind: str, value: str, *, negated: bool) -> str:
    """Why no node meets a condition, "" if one may."""
    shown = f"{kind}={'!' if negated else ''}{value}"
    if kind in PATHS and value.startswith("/dev/") and not negated:
        nodes = [device.path for device in subject.expectations.devices]
        family = find_family(f"{value}/")
        if family and family.kind and not any(same(node, value) for node in nodes):
            return f"no device of the profile has {value} (Condition{shown})"
    if kind in PATHS and value.startswith((*FIXED, "/etc/")):
        exists = bool(subject.root.glob(value)) if "*" in value else subject.root.lies(value)
        if exists == negated and (exists or value.startswith(FIXED)):
            return f"{value} {'is' if exists else 'is not'} in the image (Condition{shown})"
    if kind == "Virtualization":
        real = is_false(value) or value.startswith("private-users")
        if real == negated:
            return f"a node is a real machine (Condition{shown})"
    modules = map(plain, subject.expectations.modules)
    if kind == "KernelModuleLoaded" and not negated and plain(value) not in modules:
        return f"no overlay needs the module {value} (Condition{shown})"
    return ""


def prove_files(subject: Subject, unit: LoadedUnit, environment: Environment) -> Findings:
    for value in unit.every("EnvironmentFile"):
        path = value.partition(" (")[0]
        exists = subject.root.is_file(path) and not path.startswith(VOLATILE)
        if not path.startswith("/") or "*" in path or exists:
            continue
        if path.startswith((*VOLATILE, *FIXED)) and not made(subject, unit, path):
            lies = subject.root.is_file(path)
            where = "is in a folder that is empty at boot" if lies else "is not in the image"
            what = f"{unit.name} never starts: it requires {path}, which {where}, and "
            what += "nothing in the image creates it"
            hint = f"ship what writes it, or make it optional: EnvironmentFile=-{path}"
            yield fault(what, said_in(subject.root, unit, "EnvironmentFile"), hint=hint)
    for words in unit.commands.get("ExecCondition", ()):
        command = expanded(words, environment)
        path = command[-1] if len(command) > 1 else ""
        is_test = posixpath.basename(command[0]) == "test" and "!" not in command
        if is_test and not path and words[-1].startswith("${"):
            what = f"{unit.name} never starts: it checks for {words[-1]}, which nothing sets"
            said = said_in(subject.root, unit, "ExecCondition")
            yield fault(what, said, hint="set that variable, or remove the condition")
            continue
        tests = is_test and path.startswith("/")
        folder = posixpath.dirname(path)
        if tests and (key := hiding(unit, path)):
            why = f", which {key}= hides from it"
            hint = f"move it elsewhere, such as below /models, or change {key}="
        elif tests and not subject.root.is_dir(folder) and not appears_later(subject, path):
            key = "ExecCondition"
            why = f", and {folder} is neither in the image nor on a disk that it mounts"
            hint = "name a path below a mount point of the image, such as /models"
        else:
            continue
        yield fault(
            f"{unit.name} never starts: it checks for {path}{why}",
            said_in(subject.root, unit, key),
            *(v.evidence(name) for name, v in environment.items() if v.value == path),
            hint=hint,
        )


def prove_lines(subject: Subject, unit: LoadedUnit) -> Findings:
    """Findings about lines of its EnvironmentFile= that systemd reads differently than a shell."""
    for path in files_of(subject.root, unit):
        # Without the values, which may be secrets.
        for name, remark in remarks(subject.root.text(path)):
            say = fault if remark.lstrip("#")[:1] in ("", " ", "\t") else warning
            yield say(
                f"{name} of {path} has a comment after its value, which systemd takes as part of "
                f"the value: {unit.name} gets both",
                Evidence(path, symbol=name, said=f"{name}="),
                hint="move the comment to a line of its own, or quote the value if it has a #",
            )
        for name in unclosed(subject.root.text(path)):
            yield fault(
                f"the quotation mark in the value of {name} in {path} is never closed: {unit.name} "
                "takes the lines below for a part of the value",
                Evidence(path, symbol=name, said=f"{name}="),
                hint="close it, or remove it: a value with blanks needs none here",
            )
        if ignored := ignored_lines(subject.root.text(path)):
            first = ignored[0].partition("=")[0].strip()
            what = f"systemd ignores {first!r} of {path}: {unit.name} does not get that variable"
            hint = "write NAME=VALUE without export: EnvironmentFile= is not a shell script"
            yield fault(what, Evidence(path, said=f"{first}="), hint=hint)


def hiding(unit: LoadedUnit, path: str) -> str:
    """The setting of a unit that hides a path from its programs, "" if none."""
    bound = unit_paths(unit, "BindPaths", "BindReadOnlyPaths")
    if any(is_below(path, each.target) for each in bound):
        return ""
    if path.startswith(HOMES) and unit.last("ProtectHome") in ("yes", "tmpfs"):
        return "ProtectHome"
    for key in ("InaccessiblePaths", "TemporaryFileSystem"):
        if any(is_below(path, each.source) for each in unit_paths(unit, key)):
            return key
    return ""


def made(subject: Subject, unit: LoadedUnit, path: str) -> bool:
    """Whether a file of the image, other than the unit's own, mentions the folder of a path."""
    folder = posixpath.dirname(path)
    mentions = subject.run(["grep", "-rlsF", "-e", folder, *WRITERS]).stdout.split()
    name = folder.removeprefix("/run/")
    runtime = subject.run(
        ["grep", "-rlsE", "-e", f"^RuntimeDirectory=(.* )?{re.escape(name)}( |$)", *UNITS]
    )
    return bool(set(mentions) - set(unit.paths)) or bool(runtime.stdout.split())


def is_there(subject: Subject, path: str) -> bool:
    """Whether a node has something at a path, in the image or from boot on."""
    if subject.root.host(path) is not None or path in merged_files(subject):
        return True
    end = subject.root.end_of(path)
    return appears_later(subject, end) or appears_later(subject, f"{end}/")


def appears_later(subject: Subject, path: str) -> bool:
    """Whether a node may have a path that the image lacks: made at boot, or on a mounted disk."""
    if path.startswith(("/run/", "/dev/", "/proc/", "/sys/", "/tmp/", "/etc/")):
        return True
    return mount_of(find_mounts(subject), path) is not None


def prove_program(subject: Subject, line: CommandLine, kind: EngineKind) -> Findings:
    command = kind.model.devices.command if kind.model.devices else []
    if not command or not line.words:
        return
    program, name = command[0], posixpath.basename(command[0])
    others = [w for w in line.words if posixpath.basename(w) == name and w[0] == "/"]
    others = [word for word in others if word != program and not same_file(subject, word, program)]
    hint = f"start {program} in the unit, and remove other programs with its name"
    if others:
        what = f"{line.unit} starts {others[0]} instead of {program}: the check for the device and "
        what += "the proof examine another program"
        yield fault(what, Evidence(line.path, said=" ".join(line.words)), hint=hint)
        return
    search = line.environment.get("PATH")
    for folder in (search.value if search else PATH).split(":"):
        path = f"{folder}/{name}"
        if same_file(subject, path, program):
            return
        if subject.root.is_file(path):
            what = f"{path} comes before {program} in PATH: a check for the device by name uses "
            what += f"a different program from the one that {line.unit} runs"
            yield fault(what, Evidence(path), hint=hint)
            return


def same_file(subject: Subject, one: str, other: str) -> bool:
    found = subject.root.resolve(one)
    return one == other or (found is not None and found == subject.root.resolve(other))


def same(node: str, value: str) -> bool:
    """Whether a device node (path or glob) is at or below the path of a condition."""
    return fnmatch.fnmatchcase(value, node) or node == value or node.startswith(f"{value}/")


def prove_others(
    subject: Subject,
    unit: LoadedUnit,
    program: str,
    devices: Sequence[Device],
) -> Findings:
    """Faults of other units that start the engine without the check, or without the devices."""
    commands = (words for key in GUARDS for words in unit.commands.get(key, ()) if words)
    guards = {words for words in commands if posixpath.basename(words[0]) not in PLAIN}
    seen: set[str] = set()
    tried = 0
    for other in subject.startup.units.values():
        declared = {s.unit for s in subject.expectations.services}
        starts = other.name in subject.startup.jobs or other.every("TriggeredBy")
        if other.name == unit.name or other.name in declared | seen or not starts:
            continue
        seen.add(other.name)
        others = {words for key in GUARDS for words in other.commands.get(key, ())}
        if not any(runs(words, program) for words in other.commands.get("ExecStart", ())):
            continue
        yield from prove_closed(subject.root, other.name, devices)
        if guards & others:
            continue
        tried += 1
        if tried > MOST_CHECKS or not refuses_without(subject, other.name):
            what = f"{other.name} also starts {posixpath.basename(program)}, without the check for "
            what += f"the device that {unit.name} has: without a card it silently computes on "
            what += "the processor"
            hint = "disable it, or give it an ExecStartPre= that fails without the device, as "
            hint += f"{unit.name} has"
            yield fault(what, said_in(subject.root, other, "ExecStart"), hint=hint)


def refuses_without(subject: Subject, name: str) -> bool:
    """Whether a check of a unit, such as the same program for one kind of device, fails here."""
    unit = find_unit(subject.root, name)
    return unit is not None and any(run.refuses for run in run_guards(subject, unit))


def prove_closed(root: Root, name: str, devices: Sequence[Device]) -> Findings:
    unit = find_unit(root, name)
    shut = [d.path for d in devices if unit and not unit.allows(d.path) and "*" not in d.path]
    if unit and devices and (shut or unit.true("PrivateDevices")):
        key = "DevicePolicy" if shut else "PrivateDevices"
        what = f"{name} finds no card: {key}= takes {some(shut or (d.path for d in devices))} from "
        what += "it, and the engine computes on the processor"
        hint = "set PrivateDevices=no, and with a DevicePolicy= also DeviceAllow= for the devices"
        yield fault(what, *(Evidence(path, "Service") for path in unit.paths), hint=hint)


def runs(words: Sequence[str], program: str) -> bool:
    """Whether a command line contains a program, directly or in the text of a shell."""
    name = posixpath.basename(program)
    return any(name in part.split("/") for word in words for part in word.split())
