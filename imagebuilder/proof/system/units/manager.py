# SPDX-License-Identifier: Apache-2.0
"""What systemd does to all of a node: settings of systemd-system.conf(5) and journald.conf(5),
processors that no service uses, and what sends the node to sleep.

The scheduler puts nothing on a processor of `isolcpus=`; only a program that is pinned runs there.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.reading import systemd
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.environment import MANAGER, environment_of
from imagebuilder.proof.reading.texts import AFFINITY, processors, size_of
from imagebuilder.proof.reading.units import FOLDERS, find_file, find_unit, service_lines
from imagebuilder.proof.services.programs import LEAST
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

BOUNDS = "CapabilityBoundingSet"
# Capabilities (capabilities(7)) that the first process and its services need, and what fails.
CAPABILITIES = {
    "CAP_SYS_MODULE": "systemd-udevd cannot load a driver",
    "CAP_SYS_ADMIN": "nothing can be mounted",
    "CAP_NET_ADMIN": "systemd-networkd cannot set an address",
    "CAP_SETUID": "no service runs as a user other than root",
    "CAP_SETGID": "no service runs with the groups of its user",
    "CAP_CHOWN": "udev cannot give device nodes to their groups",
    "CAP_MKNOD": "device nodes cannot be made",
    "CAP_SYS_CHROOT": "sshd closes every connection",
    "CAP_NET_BIND_SERVICE": "sshd cannot listen on its port",
    "CAP_SYS_RESOURCE": "services whose limits are raised do not start",
}
NEVER = ("", "infinity")
JOURNAL = 1 << 30  # bytes of a node's memory
REMOVE = "remove that line from {}"
FEW = 4  # processors; nodes that compute have more
# The flag of `isolcpus=` that takes processors from the scheduler, and is the default.
FROM_SCHEDULER = "domain"
# Programs, options and variables that choose processors for a service.
PINNING = frozenset(("taskset", "numactl", "--cpu-mask", "--cpu-range", "-Cr"))
VARIABLES = re.compile(r"\w*AFFINITY|OMP_PLACES|\w*THREADS_BIND")
LOGIND = "systemd-logind.service"
# By action (logind.conf(5)): the key of systemd-sleep.conf(5) that forbids it.
SLEEPS = {
    "suspend": "AllowSuspend",
    "hibernate": "AllowHibernation",
    "hybrid-sleep": "AllowHybridSleep",
    "suspend-then-hibernate": "AllowSuspendThenHibernate",
    "sleep": "",
}
ENDS = frozenset(("poweroff", "halt", "reboot", "kexec", "soft-reboot", "factory-reset"))
# The unit that a timer starts, if not its namesake.
STARTS = re.compile(r"^[ \t]*Unit\s*=\s*(\S+)", re.MULTILINE)
NEVER_SLEEPS = re.compile(r"0+\s*\w*|infinity")


@dataclass(frozen=True)
class Harm:
    """A setting that harms every service: a regular expression for its values, and the effect.

    `program` is what it matters to, "" if always.
    """

    key: str
    value: str
    why: str
    program: str = ""


HARMS = (
    Harm("SystemCallArchitectures", r"(?!.*\b(native|x86-64|arm64)\b)\S.*",
         "no program of the image can make a system call"),
    Harm("NoNewPrivileges", r"(?i:yes|true|on|1)", "sudo works for nobody", "/usr/bin/sudo"),
    Harm("DefaultTimeoutStartSec", r"[1-4] ?(s|sec|seconds?)?|[1-4]?\d{1,3} ?ms(ec)?",
         "services that check for a device or load a model are killed while they start"),
)  # fmt: skip


def prove_manager(subject: Subject) -> Findings:
    lines = [line for line in systemd.read_config(subject, MANAGER) if line.section == "Manager"]
    bounds = [line for line in lines if line.key == BOUNDS]
    if lost := [name for name in CAPABILITIES if name not in bounded(bounds)]:
        what = f"{BOUNDS}= takes {lost[0]} from systemd and all services: {CAPABILITIES[lost[0]]}"
        what += f"; it also takes {', '.join(lost[1:])}" if lost[1:] else ""
        yield fault(what, bounds[-1].evidence, hint=REMOVE.format(bounds[-1].path))
    last = {line.key: line for line in lines}
    for harm in HARMS:
        line = last.get(harm.key)
        applies = not harm.program or subject.root.is_file(harm.program)
        if line and applies and re.fullmatch(harm.value, line.value):
            what = f"{harm.key}={line.value} for all services: {harm.why}"
            yield fault(what, line.evidence, hint=REMOVE.format(line.path))
    for unit in declared_units(subject):
        yield from prove_limits(subject, unit)


def bounded(lines: list[systemd.ConfigLine]) -> set[str]:
    """Which of CAPABILITIES remain (config_parse_capability_set() of systemd)."""
    left, whole = set(CAPABILITIES), True
    for line in lines:
        inverted = line.value.startswith("~")
        words = set(line.value.lstrip("~").upper().split())
        if whole or not words:
            named = words & set(CAPABILITIES)
            left = set(CAPABILITIES) - named if inverted else named
        else:
            left = left - words if inverted else left | words & set(CAPABILITIES)
        whole = inverted and not words
    return left


def prove_limits(subject: Subject, unit: systemd.LoadedUnit) -> Findings:
    lines = systemd.last_lines(subject, MANAGER)
    least = [row for row in LEAST if row[0] != "LimitAS" or subject.expectations.devices]
    for key, lowest, why in least:
        line = lines.get(f"Default{key}")
        soft = size_of(line.value.partition(":")[0]) if line else -1  # -1: infinity or a share
        if line and 0 <= soft < lowest and not sets(subject.root, unit, key):
            yield limited(unit, line, why)
    line = lines.get("DefaultLimitCPU")
    ends = line is not None and line.value.partition(":")[0] not in NEVER
    if line and ends and not sets(subject.root, unit, "LimitCPU"):
        yield limited(unit, line, "it is killed after that much processor time")


def limited(unit: systemd.LoadedUnit, line: systemd.ConfigLine, why: str) -> Finding:
    key = line.key.removeprefix("Default")
    what = f"{unit.name} is limited by {line.key}={line.value} of all services: {why}"
    hint = f"remove that line from {line.path}, or set {key}= in the unit"
    return fault(what, line.evidence, hint=hint)


def sets(root: Root, unit: systemd.LoadedUnit, key: str) -> bool:
    lines = (line for path in unit.paths for line in service_lines(root.text(path)))
    return any(name == key and value for name, value in lines)


def prove_journal(subject: Subject) -> Findings:
    """A warning if the journal is kept below /var, which is in memory, and may grow large there."""
    lines = systemd.last_lines(subject, "systemd/journald.conf")
    storage, most = lines.get("Storage"), lines.get("SystemMaxUse")
    size = size_of(most.value) if most else 0
    if storage and storage.value == "persistent" and not 0 < size <= JOURNAL:
        what = "the journal is kept in /var, which is in memory, and may take "
        what += f"{most.value} there" if most and size else "a tenth of it"
        yield warning(what, storage.evidence, hint="remove Storage=, or set SystemMaxUse=64M")


def prove_processors(subject: Subject) -> Findings:
    """A fault on a node with an engine; users of other nodes may pin their own programs."""
    everywhere = manager_processors(subject)
    for word in subject.words:
        isolated = isolated_by(word.value) if word.key == "isolcpus" else frozenset[int]()
        if not isolated or isolated & everywhere or is_used(subject, isolated):
            continue
        what = f"{word.text} on the command line: no service is pinned to these processors, and "
        what += "the scheduler leaves them idle"
        say = fault if subject.expectations.engines else warning
        hint = "remove it, or pin the service that computes to these processors (CPUAffinity=)"
        yield say(what, word.evidence, hint=hint)
    yield from prove_few(subject, everywhere)


def prove_few(subject: Subject, everywhere: frozenset[int]) -> Findings:
    """A fault if the manager leaves one processor to other services, a warning if a few."""
    if not 0 < len(everywhere) < FEW:
        return
    line = [line for line in systemd.read_config(subject, MANAGER) if line.key == AFFINITY][-1]
    units = declared_units(subject)
    limited = [unit.name for unit in units if not unit.every(AFFINITY)]
    if len(everywhere) > 1 and (limited or not units):
        who = f"{limited[0]} and all sessions compute" if limited else "all sessions compute"
        what = f"{who} on {len(everywhere)} processors: {AFFINITY}={line.value} of the service "
        hint = f"remove that line, or set {AFFINITY}= in the unit"
        yield warning(f"{what}manager", line.evidence, hint=hint)
    for name in limited if len(everywhere) == 1 else ():
        what = f"{name} computes on one processor: {AFFINITY}={line.value} of the service manager"
        yield fault(what, line.evidence, hint=f"remove that line, or set {AFFINITY}= in the unit")


def declared_units(subject: Subject) -> list[systemd.LoadedUnit]:
    """The units of services and engines that overlays declare, as far as systemd loads them."""
    found = (systemd.find_loaded(subject.startup, name) for name in subject.expectations.units)
    return [unit for unit in found if unit]


def is_used(subject: Subject, isolated: frozenset[int]) -> bool:
    """Whether a unit that starts is pinned to one of the processors, or pins itself."""
    starting = [unit for _, unit in subject.startup.booting()]
    declared = declared_units(subject)
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
    for line in systemd.read_config(subject, MANAGER):
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


def prove_sleep(subject: Subject) -> Findings:
    """A node is idle to logind while nobody is logged in, whatever its services do."""
    lines = systemd.last_lines(subject, "systemd/logind.conf")
    action, after = lines.get("IdleAction"), lines.get("IdleActionSec")
    seconds = after.value if after and after.value else "30min"
    is_timed = LOGIND in subject.startup.jobs and not NEVER_SLEEPS.fullmatch(seconds)
    if action and is_timed and (action.value in ENDS or sleeps(subject, action.value)):
        what = f"a node on which nobody has been logged in for {seconds} stops in the middle of "
        what += f"its work: IdleAction={action.value}"
        yield fault(what, action.evidence, hint="remove that line, or set IdleAction=ignore")
    yield from prove_timers(subject)


def prove_timers(subject: Subject) -> Findings:
    """Warnings: somebody may want it, but it interrupts what computes at that time."""
    for timer in sorted(name for name in subject.startup.jobs if name.endswith(".timer")):
        path = find_file(subject.root, timer)
        if path is None:
            continue
        named = STARTS.findall(subject.root.text(path))
        verb = verb_of(subject.root, named[-1] if named else f"{timer[:-6]}.service")
        if sleeps(subject, verb):
            what = f"{timer} sends the node to sleep ({verb}), even while it computes"
            yield warning(what, Evidence(path), hint=f"do not enable {timer}")


def verb_of(root: Root, name: str) -> str:
    """What a unit does to the node: the name of a target, or what it tells `systemctl` to do."""
    if name.endswith(".target"):
        return name.removesuffix(".target")
    unit = find_unit(root, name)
    for words in (line.split() for line in (unit.every("ExecStart") if unit else ())):
        if posixpath.basename(words[0]) == "systemctl":
            return next((word for word in words[1:] if not word.startswith("-")), "")
    return ""


def sleeps(subject: Subject, action: str) -> bool:
    """Whether an action suspends a node, and nothing in the image prevents it."""
    if action not in SLEEPS or any(is_masked(subject.root, each) for each in (action, "sleep")):
        return False
    line = systemd.last_lines(subject, "systemd/sleep.conf").get(SLEEPS[action])
    return line is None or not is_false(line.value)


def is_masked(root: Root, target: str) -> bool:
    paths = (f"{folder}/{target}.target" for folder in FOLDERS)
    return any(root.link_at(path) == "/dev/null" for path in paths)
