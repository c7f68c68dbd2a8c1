# SPDX-License-Identifier: Apache-2.0
"""Settings that keep a service from its devices, the network, memory or its programs
(systemd.exec(5)); whether its program feeds its watchdog; and plugins in the environment of an
engine that put another platform in the place of its own.

vLLM takes the platform of a plugin before the ones that it has itself
(resolve_current_platform_cls_qualname() of its platforms/__init__.py).
"""

from __future__ import annotations

import configparser
import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from re import findall

from packaging.utils import canonicalize_name

from imagebuilder.elf import read_needs
from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.reading.environment import Environment
from imagebuilder.proof.reading.mounts import find_mounts, mount_of
from imagebuilder.proof.reading.python import installed, site_packages
from imagebuilder.proof.reading.scripts import INTERPRETER, first_line
from imagebuilder.proof.reading.systemd import (
    SERVER_FAMILIES,
    LoadedUnit,
    Startup,
    address_families,
    said_in,
)
from imagebuilder.proof.reading.texts import is_loopback, whole
from imagebuilder.proof.reading.units import UnitPath, is_below, prefixes_of, unit_paths
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.expectations import Device
from imagebuilder.root import Root

# Where Triton and PyTorch's compiler keep shared libraries that they make.
COMPILED = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
# What a unit sees in the place of a folder of the node.
BOUND = ("BindPaths", "TemporaryFileSystem")
EXEC, NO_EXEC = "ExecPaths", "NoExecPaths"
# Types whose programs report to systemd, and the one that has ended when a watchdog would begin
# (systemd.service(5), Type=).
WAITED_FOR = ("notify", "notify-reload")
REPORTING = (*WAITED_FOR, "oneshot")
NEVER = ("", "0", "infinity")
# What a program contains if it reports to systemd: the message, or how it is sent (sd_notify(3)).
REPORTS = (b"WATCHDOG", b"NOTIFY_SOCKET", b"sd_notify", b"sdnotify", b"libsystemd.so")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
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
class SilentProgram:
    """A program that does not report to systemd; not sure if it runs the code of others."""

    program: str
    is_sure: bool

    @property
    def say(self) -> Callable[..., Finding]:
        return fault if self.is_sure else warning


def prove_executable(root: Root, unit: LoadedUnit) -> Findings:
    if not unit.words(NO_EXEC):
        return
    seen: set[str] = set()
    for start, (program, *_) in unit.started():
        if program in seen or not program.startswith("/") or exempt(root, unit, start, program):
            continue
        seen.add(program)
        for path, why in executed(root, program):
            if forbids := forbidding(root, unit, path):
                what = f"{unit.name} may not execute {program} ({start}=): {NO_EXEC}={forbids} "
                what += f"forbids {why}, and no {EXEC}= allows it"
                hint = f"add {posixpath.dirname(path)} to {EXEC}=, or remove {NO_EXEC}="
                where = [said_in(root, unit, key) for key in (NO_EXEC, EXEC) if unit.words(key)]
                yield fault(what, *where, Evidence(path), hint=hint)
                break


def exempt(root: Root, unit: LoadedUnit, key: str, program: str) -> bool:
    """Whether the failure of a command is ignored, or it runs outside of the namespace."""
    return not set("-+").isdisjoint(prefixes_of(root, unit, key, program))


def executed(root: Root, program: str) -> Iterator[tuple[str, str]]:
    """The files that the kernel executes to start a program, and what each is."""
    what = "it"
    # A script's interpreter may be a script; the kernel follows four of them (bprm_execve()).
    for _ in range(5):
        host = root.host(program)
        path = root.resolve(program)
        if host is None or path is None or not host.is_file():
            return
        yield path, what
        words = first_line(root.map(path))
        if words:
            program, what = words[0], f"its interpreter {words[0]}"
        elif what.startswith("its loader") or not (needs := read_needs(host)):
            return
        else:
            program, what = needs.interpreter, f"its loader {needs.interpreter}"


def forbidding(root: Root, unit: LoadedUnit, path: str) -> str:
    """The path of NoExecPaths= that forbids a file, "" if none: the most specific path wins."""
    forbidden, allowed = (deepest(root, unit, key, path) for key in (NO_EXEC, EXEC))
    return forbidden if len(forbidden) > len(allowed) else ""


def deepest(root: Root, unit: LoadedUnit, key: str, path: str) -> str:
    """The longest path of a setting that is `path` or above it."""
    known = (root.resolve(each.source) or each.source for each in unit_paths(unit, key))
    return max((each for each in known if is_below(path, each)), key=len, default="")


def prove_caches(subject: Subject, unit: LoadedUnit, environment: Environment) -> Findings:
    """Findings about folders in which a service makes libraries that it may not load.

    On a file system with noexec: "failed to map segment from shared object" (pytorch/pytorch
    #123054, mmap(2) with PROT_EXEC).  A warning, because another mount may cover it.
    """
    root, mounts = subject.root, find_mounts(subject)
    bound = [*unit_paths(unit, *BOUND)]
    for name, variable in environment.items():
        folder = variable.value if name in COMPILED else ""
        mount = mount_of(mounts, folder)
        elsewhere = any(is_below(folder, each.target) for each in bound)
        if mount and mount.forbids_execution and not elsewhere:
            what = f"{unit.name} cannot load what it compiles into {folder} ({name}): "
            what += f"{mount.name} is mounted with noexec"
            hint = "remove noexec, or use a folder on another file system"
            yield warning(what, mount.evidence, variable.evidence(name), hint=hint)
        if unit.words(NO_EXEC) and folder and (forbids := forbidding(root, unit, folder)):
            what = f"{unit.name} may not load what it compiles into {folder} ({name}): "
            what += f"{NO_EXEC}={forbids} forbids it"
            hint = f"add {folder} to {EXEC}="
            yield fault(what, said_in(root, unit, NO_EXEC), variable.evidence(name), hint=hint)


def prove_watchdog(root: Root, unit: LoadedUnit) -> Findings:
    """Findings about a watchdog whose reports the program cannot send.

    A script may start another program that does.
    """
    value = unit.last("WatchdogSec")
    if value in NEVER or unit.last("Type", "simple") in REPORTING:
        return
    if silent := find_silent(root, unit):
        what = f"systemd kills {unit.name} {value} after each start: it has WatchdogSec={value}, "
        what += f"and {silent.program} never reports (WATCHDOG=1)"
        hint = "remove WatchdogSec=, or start a program that calls sd_notify(3), with Type=notify"
        where = (said_in(root, unit, "WatchdogSec"), Evidence(silent.program))
        yield silent.say(what, *where, hint=hint)


def prove_readiness(root: Root, unit: LoadedUnit) -> Findings:
    """Findings about a service that systemd waits for, and whose program cannot say it is ready."""
    kind = unit.last("Type", "simple")
    if kind in WAITED_FOR and (silent := find_silent(root, unit)):
        what = f"systemd stops {unit.name} when its start times out: it has Type={kind}, "
        what += f"and {silent.program} never says that it is ready (READY=1)"
        hint = "remove Type=, or start a program that calls sd_notify(3)"
        where = (said_in(root, unit, "Type"), Evidence(silent.program))
        yield silent.say(what, *where, hint=hint)


def find_silent(root: Root, unit: LoadedUnit) -> SilentProgram | None:
    """The program of a service, if nothing in it can report to systemd."""
    words = next(iter(unit.commands.get("ExecStart", ())), ())
    program = root.map(words[0]) if words else None
    files = [root.map(word) or b"" for word in words if word.startswith("/")]
    if program is None or any(data.find(mark) >= 0 for data in files for mark in REPORTS):
        return None
    runs_others = INTERPRETER.fullmatch(posixpath.basename(words[0]))
    return SilentProgram(words[0], program[:4] == b"\x7fELF" and not runs_others)


@dataclass(frozen=True)
class PlatformPlugin:
    """An entry point (`name = code`) of a distribution, and the file that has it."""

    name: str
    code: str
    path: str


def prove_platform_plugins(
    subject: Subject, unit: str, path: str, module: str, environment: Environment
) -> Findings:
    """Warnings: a plugin may find out by itself that its device is missing."""
    site = site_packages(subject.root, path)
    allowed = environment.get(f"{module.upper()}_PLUGINS")
    names = allowed.value.split(",") if allowed else None
    for plugin in read_plugins(subject.root, site, f"{module}.platform_plugins") if site else ():
        if names is not None and plugin.name not in names:
            continue
        distribution = posixpath.basename(posixpath.dirname(plugin.path)).removesuffix(".dist-info")
        what = f"{unit} may compute on the platform of {distribution} and not on its own: the "
        what += f"plugin {plugin.name} in {path} takes the place of those of {module}"
        if gone := lacking(subject.root, site or "", posixpath.dirname(plugin.path)):
            what += f", and needs {gone}, which is not installed"
        hint = f"remove that distribution, or set {module.upper()}_PLUGINS= to the plugins to load"
        yield warning(what, Evidence(plugin.path, said=plugin.code), hint=hint)


def read_plugins(root: Root, site: str, group: str) -> Iterator[PlatformPlugin]:
    """The entry points of a group (packaging.python.org, "Entry points specification")."""
    for path in root.glob(f"{site}/*.dist-info/entry_points.txt"):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[method-assign,assignment] # names keep their case
        try:
            parser.read_string(root.text(path))
        except configparser.Error:
            continue
        if parser.has_section(group):
            for name, code in parser.items(group):
                yield PlatformPlugin(name, f"{name} = {code}", path)


def lacking(root: Root, site: str, info: str) -> str:
    """The first distribution that one requires without a condition and that is not there."""
    there = installed(root, site)
    requires = next((each.requires for each in there.values() if each.path == info), ())
    for text in requires:
        name = NAME.match(text.strip())
        if name and ";" not in text and canonicalize_name(name[0]) not in there:
            return name[0]
    return ""


@dataclass(frozen=True)
class Confined:
    """A service: its device nodes, whether it serves other machines, and computes on a card."""

    unit: LoadedUnit
    devices: tuple[Device, ...]
    serves: bool
    computes: bool


def prove_confinement(root: Root, startup: Startup, service: Confined) -> Findings:
    yield from prove_nodes(root, service)
    yield from prove_calls(root, service)
    if service.computes:
        yield from prove_drivers(root, service.unit)
    if service.serves:
        yield from prove_network(root, service)
    yield from prove_limits(root, service.unit, service.unit, gpu=bool(service.devices))
    if group := startup.units.get(service.unit.last("Slice")):
        yield from prove_limits(root, service.unit, group, gpu=False)


def prove_nodes(root: Root, service: Confined) -> Findings:
    unit = service.unit
    top = unit.last("RootDirectory", "/").removeprefix("-")
    program = next((words[0] for words in unit.commands.get("ExecStart", ()) if words), "")
    if top != "/" and program and not root.is_file(f"{top}{program}"):
        yield barred(root, unit, "RootDirectory", f"runs in {top}, which has no {program}")
    for device in service.devices:
        if key := hidden_by(unit, device.path):
            yield barred(root, unit, key, f"has {key}= and cannot open {device.path}")
    owned = [device.path for device in service.devices if device.group]
    if owned and unit.last("PrivateUsers", "no") in ("yes", "self") and unit.last("User") != "root":
        what = "has PrivateUsers=yes: in its user namespace the group that owns "
        yield barred(root, unit, "PrivateUsers", f"{what}{owned[0]} does not exist")


def hidden_by(unit: LoadedUnit, path: str) -> str:
    """The setting that hides a device node (path or glob), "" if none."""
    if covers(unit_paths(unit, "BindPaths", "BindReadOnlyPaths"), path):
        return ""
    keys = ("InaccessiblePaths", "TemporaryFileSystem")
    return next((key for key in keys if covers(unit_paths(unit, key), path)), "")


def prove_drivers(root: Root, unit: LoadedUnit) -> Findings:
    if unit.last("MemoryDenyWriteExecute") == "yes":
        what = "has MemoryDenyWriteExecute=yes: the driver of the card compiles kernels in memory, "
        what += "but may not execute them"
        yield barred(root, unit, "MemoryDenyWriteExecute", what)
    if unit.last("ProcSubset") == "pid":
        what = "has ProcSubset=pid: /proc/driver, /proc/devices, /proc/cpuinfo and /proc/meminfo "
        what += "are hidden from the driver and the engine"
        yield barred(root, unit, "ProcSubset", what)


def covers(places: Iterable[UnitPath], path: str) -> bool:
    """Whether one of the places is where a unit's programs see `path` (or a glob), or above it."""
    targets = [each.target for each in places]
    return any(is_below(path, each) or fnmatch.fnmatchcase(each, path) for each in targets)


def prove_calls(root: Root, service: Confined) -> Findings:
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
        yield barred(root, unit, "SystemCallFilter", what)


def prove_network(root: Root, service: Confined) -> Findings:
    unit = service.unit
    if unit.last("PrivateNetwork") == "yes":
        yield barred(root, unit, "PrivateNetwork", "has PrivateNetwork=yes, so nobody can reach it")
    families = address_families(root, unit)
    if families is not None and not families & set(SERVER_FAMILIES):
        yield barred(
            root,
            unit,
            "RestrictAddressFamilies",
            "may not use the network: RestrictAddressFamilies=",
        )
    if "any" in unit.words("SocketBindDeny") and not unit.words("SocketBindAllow"):
        yield barred(root, unit, "SocketBindDeny", "may not listen on any port: SocketBindDeny=any")
    allowed = [a for a in unit.words("IPAddressAllow") if not is_loopback(a)]
    if "0.0.0.0/0" in unit.words("IPAddressDeny") and not allowed:
        yield barred(root, unit, "IPAddressDeny", "refuses every other machine: IPAddressDeny=any")


def prove_limits(root: Root, service: LoadedUnit, unit: LoadedUnit, *, gpu: bool) -> Findings:
    """Faults of limits that are too low; `unit` is the service's own or its slice."""
    whose = "" if unit is service else f" by {unit.name}"
    for key, least, why in LEAST:
        if key == "LimitAS" and not gpu:
            continue
        value = unit.last(key)
        if value.isdecimal() and whole(value) < least:
            what = f"{service.name} is limited to {key}={value}{whose}: {why}"
            yield fault(what, said_in(root, unit, key), hint=LOOSEN)
    if 0 < processors_of(unit) < 1:
        what = f"{service.name} gets less than one processor{whose}: CPUQuota="
        yield fault(what, said_in(root, unit, "CPUQuota"), hint=LOOSEN)
    if unit.last("LimitCPU").isdecimal() and unit.last("LimitCPU") != str((1 << 64) - 1):
        what = f"{service.name} is killed after {unit.last('LimitCPU')} s of processor time: "
        what += "LimitCPU="
        yield fault(what, said_in(root, unit, "LimitCPU"), hint=LOOSEN)


def processors_of(unit: LoadedUnit) -> float:
    """As many processors' time as a unit may use; 0 if there is no limit."""
    parts = findall(r"([\d.]+)(us|ms|s|min|h)\b", unit.last(QUOTA))
    return sum(float(number) * UNITS[name] for number, name in parts)


def barred(root: Root, unit: LoadedUnit, key: str, what: str) -> Finding:
    """The fault of a setting, with the line that sets it."""
    return fault(f"{unit.name} {what}", said_in(root, unit, key), hint=LOOSEN)
