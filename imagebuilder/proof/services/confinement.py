# SPDX-License-Identifier: Apache-2.0
"""Settings that keep a service from its devices, the network or memory (systemd.exec(5))."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from re import findall

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.addresses import is_loopback
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.systemd import (
    SERVER_FAMILIES,
    LoadedUnit,
    Startup,
    address_families,
    said_in,
)
from imagebuilder.proof.reading.units import UnitPath, is_below, unit_paths
from imagebuilder.proof.services import SAY
from imagebuilder.recipe.expectations import Device
from imagebuilder.root import Root

GIB = 1 << 30
# System calls of every program that opens a device, maps its memory and starts threads.
CALLS = ("close", "futex", "ioctl", "mmap", "munmap", "openat", "read", "write")
SERVER_CALLS = ("accept4", "bind", "listen", "socket")

# Lowest values, each with why less is too little.  Drivers reserve address space for all memory of
# the host and of the cards (libhsakmt's fmm_init_process_apertures, CUDA's unified addressing).
LEAST = (
    ("LimitAS", 64 * GIB, "a driver reserves far more address space than it uses"),
    ("LimitDATA", GIB, "the engine alone needs more"),
    ("LimitNOFILE", 64, "libraries and device nodes alone need more open files"),
    ("LimitNPROC", 32, "the engine starts more threads"),
    ("LimitFSIZE", 1 << 20, "nothing can be cached"),
    ("TasksMax", 32, "the engine starts more threads"),
    ("MemoryMax", GIB, "the engine, its libraries and buffers alone need more"),
    ("MemoryHigh", GIB, "the engine, its libraries and buffers alone need more"),
)
# The processor time per second that a unit may use, as systemd prints it.
QUOTA = "CPUQuotaPerSecSec"
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
LOOSEN = "remove that line, or override it in a later drop-in of the unit"


@dataclass(frozen=True)
class Confined:
    """A service: its device nodes, whether it serves other machines, and computes on a card."""

    unit: LoadedUnit
    devices: tuple[Device, ...]
    serves: bool
    computes: bool


def prove_confinement(root: Root, startup: Startup, service: Confined) -> Iterator[Finding]:
    yield from prove_nodes(root, service)
    yield from prove_calls(root, service)
    if service.computes:
        yield from prove_drivers(root, service.unit)
    if service.serves:
        yield from prove_network(root, service)
    yield from prove_limits(root, service.unit, service.unit, gpu=bool(service.devices))
    if group := startup.units.get(service.unit.last("Slice")):
        yield from prove_limits(root, service.unit, group, gpu=False)


def prove_nodes(root: Root, service: Confined) -> Iterator[Finding]:
    unit = service.unit
    top = unit.last("RootDirectory", "/").removeprefix("-")
    program = next((words[0] for words in unit.commands.get("ExecStart", ()) if words), "")
    if top != "/" and program and not root.is_file(f"{top}{program}"):
        yield fault(root, unit, "RootDirectory", f"runs in {top}, which has no {program}")
    for device in service.devices:
        if key := hidden_by(unit, device.path):
            yield fault(root, unit, key, f"has {key}= and cannot open {device.path}")
    owned = [device.path for device in service.devices if device.group]
    if owned and unit.last("PrivateUsers", "no") in ("yes", "self") and unit.last("User") != "root":
        what = "has PrivateUsers=yes: in its user namespace the group that owns "
        yield fault(root, unit, "PrivateUsers", f"{what}{owned[0]} does not exist")


def hidden_by(unit: LoadedUnit, path: str) -> str:
    """The setting that hides a device node (path or glob), "" if none."""
    if covers(unit_paths(unit, "BindPaths", "BindReadOnlyPaths"), path):
        return ""
    keys = ("InaccessiblePaths", "TemporaryFileSystem")
    return next((key for key in keys if covers(unit_paths(unit, key), path)), "")


def prove_drivers(root: Root, unit: LoadedUnit) -> Iterator[Finding]:
    if unit.last("MemoryDenyWriteExecute") == "yes":
        what = "has MemoryDenyWriteExecute=yes: the driver of the card compiles kernels in memory, "
        what += "but may not execute them"
        yield fault(root, unit, "MemoryDenyWriteExecute", what)
    if unit.last("ProcSubset") == "pid":
        what = "has ProcSubset=pid: /proc/driver, /proc/devices, /proc/cpuinfo and /proc/meminfo "
        what += "are hidden from the driver and the engine"
        yield fault(root, unit, "ProcSubset", what)


def covers(places: Iterable[UnitPath], path: str) -> bool:
    """Whether one of the places is where a unit's programs see `path` (or a glob), or above it."""
    targets = [each.target for each in places]
    return any(is_below(path, each) or fnmatch.fnmatchcase(each, path) for each in targets)


def prove_calls(root: Root, service: Confined) -> Iterator[Finding]:
    unit = service.unit
    words = unit.words("SystemCallFilter")
    if not words:
        return
    names = {word.lstrip("~").partition(":")[0] for word in words}
    denies = words[0].startswith("~")
    needed = (*CALLS, *(SERVER_CALLS if service.serves else ()))
    refused = [call for call in needed if (call in names) == denies]
    if refused:
        what = f"may not call {', '.join(refused)}: SystemCallFilter="
        yield fault(root, unit, "SystemCallFilter", what)


def prove_network(root: Root, service: Confined) -> Iterator[Finding]:
    unit = service.unit
    if unit.last("PrivateNetwork") == "yes":
        yield fault(root, unit, "PrivateNetwork", "has PrivateNetwork=yes, so nobody can reach it")
    families = address_families(root, unit)
    if families is not None and not families & set(SERVER_FAMILIES):
        yield fault(
            root,
            unit,
            "RestrictAddressFamilies",
            "may not use the network: RestrictAddressFamilies=",
        )
    if "any" in unit.words("SocketBindDeny") and not unit.words("SocketBindAllow"):
        yield fault(root, unit, "SocketBindDeny", "may not listen on any port: SocketBindDeny=any")
    allowed = [a for a in unit.words("IPAddressAllow") if not is_loopback(a)]
    if "0.0.0.0/0" in unit.words("IPAddressDeny") and not allowed:
        yield fault(root, unit, "IPAddressDeny", "refuses every other machine: IPAddressDeny=any")


def prove_limits(
    root: Root, service: LoadedUnit, unit: LoadedUnit, *, gpu: bool
) -> Iterator[Finding]:
    """Faults of limits that are too low; `unit` is the service's own or its slice."""
    whose = "" if unit is service else f" by {unit.name}"
    for key, least, why in LEAST:
        if key == "LimitAS" and not gpu:
            continue
        value = unit.last(key)
        if value.isdecimal() and whole(value) < least:
            what = f"{service.name} is limited to {key}={value}{whose}: {why}"
            yield SAY.fault(what, said_in(root, unit, key), hint=LOOSEN)
    if 0 < processors_of(unit) < 1:
        what = f"{service.name} gets less than one processor{whose}: CPUQuota="
        yield SAY.fault(what, said_in(root, unit, "CPUQuota"), hint=LOOSEN)
    if unit.last("LimitCPU").isdecimal() and unit.last("LimitCPU") != str((1 << 64) - 1):
        what = f"{service.name} is killed after {unit.last('LimitCPU')} s of processor time: "
        what += "LimitCPU="
        yield SAY.fault(what, said_in(root, unit, "LimitCPU"), hint=LOOSEN)


def processors_of(unit: LoadedUnit) -> float:
    """As many processors' time as a unit may use; 0 if there is no limit."""
    parts = findall(r"([\d.]+)(us|ms|s|min|h)\b", unit.last(QUOTA))
    return sum(float(number) * UNITS[name] for number, name in parts)


def fault(root: Root, unit: LoadedUnit, key: str, what: str) -> Finding:
    """The fault of a setting, with the line that sets it."""
    return SAY.fault(f"{unit.name} {what}", said_in(root, unit, key), hint=LOOSEN)
