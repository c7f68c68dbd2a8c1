# SPDX-License-Identifier: Apache-2.0
"""Settings that keep a service from its devices, the network or memory (systemd.exec(5))."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from re import fullmatch

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.access.units import service_lines
from imagebuilder.proof.services import SAY
from imagebuilder.proof.systemd import LoadedUnit, Startup
from imagebuilder.recipe.expectations import Device
from imagebuilder.root import Root

GIB = 1 << 30
# System calls of every program that opens a device, maps its memory and starts threads.
CALLS = ("close", "futex", "ioctl", "mmap", "munmap", "openat", "read", "write")
SERVER_CALLS = ("accept4", "bind", "listen", "socket")
SERVER_FAMILIES = ("AF_INET", "AF_INET6")
LOOPBACK = ("127.", "::1")
# Lowest values, each with why less is too little.  Drivers reserve address space for all memory of
# the host and of the cards (libhsakmt's fmm_init_process_apertures, CUDA's unified addressing).
LEAST = (
    ("LimitAS", 64 * GIB, "a driver reserves far more address space than it uses"),
    ("LimitDATA", GIB, "the engine alone needs more"),
    ("LimitNOFILE", 64, "libraries and device nodes are more files"),
    ("LimitNPROC", 32, "the engine starts more threads"),
    ("LimitFSIZE", 1 << 20, "nothing can be cached"),
    ("TasksMax", 32, "the engine starts more threads"),
    ("MemoryMax", GIB, "the engine, its libraries and buffers alone need more"),
    ("MemoryHigh", GIB, "the engine, its libraries and buffers alone need more"),
)
# The processor time per second that a unit may use, as systemd prints it.
QUOTA = "CPUQuotaPerSecSec"
LOOSEN = "remove that line, or override it in a later drop-in of the unit"


@dataclass(frozen=True)
class Confined:
    """A service: its unit, the device nodes it needs, whether it serves other machines, and whether
    it computes on a card.
    """

    unit: LoadedUnit
    devices: tuple[Device, ...]
    serves: bool
    computes: bool


def prove_confinement(root: Root, startup: Startup, service: Confined) -> Iterator[Finding]:
    """Faults only."""
    yield from prove_nodes(root, service)
    yield from prove_calls(root, service)
    if service.computes:
        yield from prove_drivers(root, service.unit)
    if service.serves:
        yield from prove_network(root, service)
    yield from prove_limits(root, service.unit, service.unit, gpu=bool(service.devices))
    group = startup.units.get(service.unit.last("Slice"))
    if group:
        yield from prove_limits(root, service.unit, group, gpu=False)


def prove_nodes(root: Root, service: Confined) -> Iterator[Finding]:
    """Faults of paths that the service cannot see."""
    unit = service.unit
    top = unit.last("RootDirectory", "/").removeprefix("-")
    program = next((words[0] for words in unit.commands.get("ExecStart", ()) if words), "")
    if top != "/" and program and not root.is_file(f"{top}{program}"):
        where = said_in(root, unit, "RootDirectory")
        what = f"{unit.name} runs in {top}, which has no {program}"
        yield SAY.fault(what, where, hint=LOOSEN)
    for device in service.devices:
        key = hidden_by(unit, device.path)
        if key:
            what = f"{unit.name} has {key}= and cannot open {device.path}"
            yield SAY.fault(what, said_in(root, unit, key), hint=LOOSEN)
    owned = [device.path for device in service.devices if device.group]
    if owned and unit.last("PrivateUsers", "no") in ("yes", "self") and unit.last("User") != "root":
        what = f"{unit.name} has PrivateUsers=yes: in its user namespace the group that owns "
        what += f"{owned[0]} does not exist"
        yield SAY.fault(what, said_in(root, unit, "PrivateUsers"), hint=LOOSEN)
    barred = covers(unit.words("NoExecPaths"), program)
    if program and barred and not covers(unit.words("ExecPaths"), program):
        what = f"{unit.name} may not execute {program}: NoExecPaths="
        yield SAY.fault(what, said_in(root, unit, "NoExecPaths"), hint=LOOSEN)


def hidden_by(unit: LoadedUnit, path: str) -> str:
    """The setting that hides a device node (path or glob), "" if none."""
    shown = [word.split(":")[0] for key in ("BindPaths", "BindReadOnlyPaths")
             for word in unit.words(key)]  # fmt: skip
    if covers(shown, path):
        return ""
    keys = ("InaccessiblePaths", "TemporaryFileSystem")
    return next((key for key in keys if covers(unit.words(key), path)), "")


def prove_drivers(root: Root, unit: LoadedUnit) -> Iterator[Finding]:
    """Faults of settings that drivers in the process do not work with."""
    if unit.last("MemoryDenyWriteExecute") == "yes":
        what = f"{unit.name} has MemoryDenyWriteExecute=yes: the driver of the card compiles "
        what += "kernels in memory, but may not execute them"
        yield SAY.fault(what, said_in(root, unit, "MemoryDenyWriteExecute"), hint=LOOSEN)
    if unit.last("ProcSubset") == "pid":
        what = f"{unit.name} has ProcSubset=pid: /proc/driver, /proc/devices, /proc/cpuinfo and "
        what += "/proc/meminfo are hidden from the driver and the engine"
        yield SAY.fault(what, said_in(root, unit, "ProcSubset"), hint=LOOSEN)


def covers(words: Iterable[str], path: str) -> bool:
    """Whether one of the paths (with prefixes and options as in a unit) is `path` or a parent."""
    for word in words:
        place = word.lstrip("-+").partition(":")[0].rstrip("/")
        if path == place or path.startswith(f"{place}/") or fnmatch.fnmatchcase(place, path):
            return True
    return False


def prove_calls(root: Root, service: Confined) -> Iterator[Finding]:
    """Faults of needed system calls that the filter refuses."""
    unit = service.unit
    words = unit.words("SystemCallFilter")
    if not words:
        return
    names = {word.lstrip("~").partition(":")[0] for word in words}
    denies = words[0].startswith("~")
    needed = (*CALLS, *(SERVER_CALLS if service.serves else ()))
    refused = [call for call in needed if (call in names) == denies]
    if refused:
        what = f"{unit.name} may not call {', '.join(refused)}: SystemCallFilter="
        yield SAY.fault(what, said_in(root, unit, "SystemCallFilter"), hint=LOOSEN)


def prove_network(root: Root, service: Confined) -> Iterator[Finding]:
    """Faults of a service that nobody can reach."""
    unit = service.unit
    if unit.last("PrivateNetwork") == "yes":
        what = f"{unit.name} has PrivateNetwork=yes, so nobody can reach it"
        yield SAY.fault(what, said_in(root, unit, "PrivateNetwork"), hint=LOOSEN)
    families = address_families(root, unit)
    if families is not None and not families & set(SERVER_FAMILIES):
        what = f"{unit.name} may not use the network: RestrictAddressFamilies="
        yield SAY.fault(what, said_in(root, unit, "RestrictAddressFamilies"), hint=LOOSEN)
    if "any" in unit.words("SocketBindDeny") and not unit.words("SocketBindAllow"):
        what = f"{unit.name} may not listen on any port: SocketBindDeny=any"
        yield SAY.fault(what, said_in(root, unit, "SocketBindDeny"), hint=LOOSEN)
    allowed = [a for a in unit.words("IPAddressAllow") if not a.startswith(LOOPBACK)]
    if "0.0.0.0/0" in unit.words("IPAddressDeny") and not allowed:
        what = f"{unit.name} refuses every other machine: IPAddressDeny=any"
        yield SAY.fault(what, said_in(root, unit, "IPAddressDeny"), hint=LOOSEN)


def address_families(root: Root, unit: LoadedUnit) -> set[str] | None:
    """The families that RestrictAddressFamilies= allows, None without it.

    It is read from the files, because systemd's dump does not have it.
    """
    families: set[str] | None = None
    for path in unit.paths:
        for key, value in service_lines(root.text(path)):
            if key != "RestrictAddressFamilies":
                continue
            words = set(value.lstrip("~").split())
            if not value:
                families = None
            elif value.startswith("~"):
                families = (families if families is not None else set(SERVER_FAMILIES)) - words
            else:
                families = (families or set()) | (words - {"none"})
    return families


def prove_limits(
    root: Root, service: LoadedUnit, unit: LoadedUnit, *, gpu: bool
) -> Iterator[Finding]:
    """Faults of limits that are too low; `unit` is the service's own or its slice."""
    for key, least, why in LEAST:
        if key == "LimitAS" and not gpu:
            continue
        value = unit.last(key)
        if value.isdecimal() and int(value) < least:
            whose = "" if unit is service else f" by {unit.name}"
            what = f"{service.name} is limited to {key}={value}{whose}: {why}"
            yield SAY.fault(what, said_in(root, unit, key), hint=LOOSEN)
    quota = unit.last(QUOTA)
    if fullmatch(r"(\d+(\.\d+)?(ms|us) ?)+", quota):
        whose = "" if unit is service else f" by {unit.name}"
        what = f"{service.name} gets less than one processor{whose}: CPUQuota="
        yield SAY.fault(what, said_in(root, unit, "CPUQuota"), hint=LOOSEN)
    if unit.last("LimitCPU").isdecimal() and unit.last("LimitCPU") != str((1 << 64) - 1):
        what = f"{service.name} is killed after {unit.last('LimitCPU')} s of computing: LimitCPU="
        yield SAY.fault(what, said_in(root, unit, "LimitCPU"), hint=LOOSEN)


def said_in(root: Root, unit: LoadedUnit, key: str) -> Evidence:
    """The last line of the unit's files that sets a key."""
    for path in reversed(unit.paths):
        for line in reversed(root.text(path).splitlines()):
            if line.partition("=")[0].strip() == key:
                return Evidence(path, said=line.strip())
    value = " ".join(unit.every(key))
    return Evidence(unit.paths[0] if unit.paths else posixpath.sep, said=f"{key}={value}")
