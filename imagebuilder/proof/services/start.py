# SPDX-License-Identifier: Apache-2.0
"""Whether a service starts on the nodes it is for, and who else starts its engine."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Finding
from imagebuilder.proof.fallback.guard import PLAIN
from imagebuilder.proof.services import SAY
from imagebuilder.proof.services.confinement import said_in
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.systemd import LoadedUnit, Startup

# What of the tree is the same on every node, as against /run, /proc, /sys, /dev and a node's disk.
# A node may have files of its own in /etc.
FIXED = ("/usr/", "/opt/")
PATHS = ("PathExists", "PathIsDirectory", "FileNotEmpty", "FileIsExecutable", "PathExistsGlob")
GUARDS = ("ExecCondition", "ExecStartPre")


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
    if kind == "KernelModuleLoaded" and not negated and not known(subject, value):
        return f"no overlay needs the module {value} (Condition{shown})"
    return ""


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
