# SPDX-License-Identifier: Apache-2.0
"""Processors that no service uses: `isolcpus=`, and CPUAffinity= of the service manager.

The scheduler puts nothing on an isolated processor; only a program that is pinned runs there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.cmdline import kernel_words
from imagebuilder.proof.reading.environment import MANAGER, environment_of
from imagebuilder.proof.reading.processors import AFFINITY, processors
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup, find_loaded, read_config
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

FEW = 4  # processors; nodes that compute have more
# The flag of `isolcpus=` that takes processors from the scheduler, and is the default.
FROM_SCHEDULER = "domain"
# Programs, options and variables that choose processors for a service.
PINNING = frozenset(("taskset", "numactl", "--cpu-mask", "--cpu-range", "-Cr"))
VARIABLES = re.compile(r"\w*AFFINITY|OMP_PLACES|\w*THREADS_BIND")


def prove_processors(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A fault on a node with an engine; users of other nodes may pin their own programs."""
    everywhere = manager_processors(subject)
    for word in kernel_words(subject.cmdline):
        isolated = isolated_by(word.value) if word.key == "isolcpus" else frozenset[int]()
        if not isolated or isolated & everywhere or is_used(subject, startup, isolated):
            continue
        what = f"{word.text} on the command line: no service is pinned to these processors, and "
        what += "the scheduler leaves them idle"
        say = SAY.fault if subject.expectations.engines else SAY.warning
        hint = "remove it, or pin the service that computes to these processors (CPUAffinity=)"
        yield say(what, word.evidence, hint=hint)
    yield from prove_few(subject, startup, everywhere)


def prove_few(subject: Subject, startup: Startup, everywhere: frozenset[int]) -> Iterator[Finding]:
    """What the service manager leaves to services without a list of their own, and to sessions: a
    fault if it is one processor, and a warning if it is a few.
    """
    if not 0 < len(everywhere) < FEW:
        return
    line = [line for line in read_config(subject, MANAGER) if line.key == AFFINITY][-1]
    units = declared_units(subject, startup)
    limited = [unit.name for unit in units if not unit.every(AFFINITY)]
    if len(everywhere) > 1 and (limited or not units):
        who = f"{limited[0]} and all sessions compute" if limited else "all sessions compute"
        what = f"{who} on {len(everywhere)} processors: {AFFINITY}={line.value} of the service "
        hint = f"remove that line, or set {AFFINITY}= in the unit"
        yield SAY.warning(f"{what}manager", line.evidence, hint=hint)
    for name in limited if len(everywhere) == 1 else ():
        what = f"{name} computes on one processor: {AFFINITY}={line.value} of the service manager"
        hint = f"remove that line, or set {AFFINITY}= in the unit"
        yield SAY.fault(what, line.evidence, hint=hint)


def declared_units(subject: Subject, startup: Startup) -> list[LoadedUnit]:
    """The units of services and engines that overlays declare, as far as systemd loads them."""
    found = (find_loaded(startup, name) for name in subject.expectations.units)
    return [unit for unit in found if unit]


def is_used(subject: Subject, startup: Startup, isolated: frozenset[int]) -> bool:
    """Whether a unit that starts is pinned to one of the processors, or pins itself."""
    starting = [unit for name, unit in startup.units.items() if name in startup.jobs]
    declared = declared_units(subject, startup)
    for unit in (*starting, *declared):
        if isolated & processors(" ".join(unit.every(AFFINITY))) or "yes" in unit.every(
            "CPUAffinityFromNUMA"
        ):
            return True
        words = [word for line in unit.commands.get("ExecStart", ()) for word in line]
        if PINNING & {posixpath.basename(word).partition("=")[0] for word in words}:
            return True
    variables = (name for unit in declared for name in environment_of(subject, unit))
    return any(VARIABLES.fullmatch(name) for name in variables)


def manager_processors(subject: Subject) -> frozenset[int]:
    """The processors of CPUAffinity= in system.conf; an empty line removes those before it."""
    found = frozenset[int]()
    for line in read_config(subject, MANAGER):
        if line.key == AFFINITY:
            found = found | processors(line.value) if line.value else frozenset()
    return found


def isolated_by(value: str) -> frozenset[int]:
    """The processors that `isolcpus=[flag,...]LIST` takes from the scheduler."""
    words = value.split(",")
    flags = [word for word in words if word and word[0].islower() and word != "all"]
    if flags and FROM_SCHEDULER not in flags:
        return frozenset()
    return processors(",".join(word for word in words if word not in flags))
