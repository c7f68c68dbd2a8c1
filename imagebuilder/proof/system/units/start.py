# SPDX-License-Identifier: Apache-2.0
"""What starts at boot, by the image's own systemd, and which of it uses the port of an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.proof.reading import systemd
from imagebuilder.proof.reading.config import CMDLINE, KernelWord
from imagebuilder.proof.reading.environment import environment_of
from imagebuilder.proof.reading.texts import is_loopback
from imagebuilder.proof.reading.units import FOLDERS, find_file, template
from imagebuilder.proof.say import some
from imagebuilder.proof.services.prove import engine_lines
from imagebuilder.proof.subject import Subject

# kernel-command-line(7): what starts instead of the default target.
RUNLEVELS = {
    **dict.fromkeys(("rescue", "single", "s", "S", "1"), "rescue.target"),
    **dict.fromkeys(("emergency", "-b"), "emergency.target"),
}
# Complaints of systemd about lines that have no effect; others are advice.
REFUSED = re.compile(
    r"Unknown|Failed to (parse|resolve)|Invalid|[Mm]issing|not absolute|ignoring line"
)
# The end of what systemd says of a unit that it does not load (unit_load() and others).
REFUSING = "Refusing."
# Targets of every boot: a unit that one of them wants starts with it.
BOOT = frozenset(
    f"{name}.target"
    for name in (
        "basic", "default", "getty", "graphical", "local-fs", "multi-user", "network-online",
        "paths", "remote-fs", "sockets", "sysinit", "timers",
    )
)  # fmt: skip
BINDING = ("Requires", "Requisite", "BindsTo")
LASTING = frozenset(("-.mount", "tmp.mount", "var-tmp.mount", "run.mount"))
# Without these nobody can reach a node.
REACHED_BY = frozenset(("ssh", "sshd", "systemd-networkd", "systemd-resolved"))
# Units that systemd's own targets want, and the effect of masking each.
NEEDED = {
    "systemd-user-sessions.service": "/run/nologin stays, and nobody but root may log in",
    "systemd-udevd.service": "no driver is loaded for any device",
    "systemd-udev-trigger.service": "no driver is loaded for devices that existed before udev",
    "systemd-modules-load.service": "modules-load.d is not read",
    "systemd-sysctl.service": "sysctl.d is not read",
    "systemd-tmpfiles-setup.service": "folders in /run and /var are not made",
    "systemd-tmpfiles-setup-dev.service": "device nodes of tmpfiles.d are not made",
    "systemd-journald.service": "nothing is logged, and services that log may block",
    "systemd-logind.service": "sessions have no limits and no folder in /run/user",
    "dbus.service": "systemd's services cannot be reached over D-Bus",
    "dbus.socket": "systemd's services cannot be reached over D-Bus",
}
INITS = ("init", "rdinit")
# Options that set where to listen; other mentions of a port, as by a proxy, are no conflict.
PORT = "PORT"
LISTENS = re.compile(
    rf"(\s-p|\s-l|--(http-)?port|--listen(-address)?|--bind|http\.server)[ =](\S*:)?{PORT}\s"
)
# What only a server's command line has; `--port` and `-p` may be those of another machine.
SERVES = re.compile(
    r"((?<![\w.-])--?(?=[\w.-]*?(?:listen|bind))[\w.-]+[ =]\S*?:?|http\.server (\S+ ){0,9}?"
    r"|[ =/](0\.0\.0\.0|\[::\]|\*):)"
    r"(?P<port>\d{2,5})[ /]"
)
# The same with the address in an option of its own, and in a variable.
ADDRESS = re.compile(r"\s--[\w.-]*(ip|host|address|interface)[ =](0\.0\.0\.0|\[?::\]?|\*)\s")
NUMBER = re.compile(r"\s--[\w.-]*port[ =](?P<port>\d{2,5})\s")
TELLS = re.compile(r"HOST|LISTEN|ADDR|BIND", re.IGNORECASE)
ANYWHERE = re.compile(r"(https?://)?(0\.0\.0\.0|\[::\]|\*)?:(?P<port>\d{2,5})/?")
MOST_LINE = 4096  # characters of a command that are searched
BETWEEN = re.compile(r"[\s=/,;'\"&|()]+")
SSHD = re.compile(r"^[ \t]*Port\s+(\d+)", re.IGNORECASE | re.MULTILINE)
FILES_OF_SSHD = ("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf")


def prove_start(subject: Subject) -> Findings:
    startup = subject.startup
    for unit, cycle in startup.dropped.items():
        what = f"{unit} is not started: it is in an ordering cycle"
        hint = "remove one After= or Before= of the cycle"
        yield fault(what, Evidence(place_of(startup, unit), said=cycle), hint=hint)
    yield from prove_lines(subject)
    gone = [u for u in subject.enabled if u not in startup.jobs and u not in startup.dropped]
    missing = [u for u in gone if not starts_otherwise(startup, u)]
    if missing:
        yield not_started(subject, missing)
    else:
        names = some(sorted(subject.enabled))
        yield fact(f"units that overlays enable start with {systemd.DEFAULT}: {names}")
    yield from prove_stopped(subject)
    yield from prove_masked(subject)
    yield from prove_words(subject)


def prove_lines(subject: Subject) -> Findings:
    """Findings about lines that systemd ignores; only a warning for a package's own unit."""
    for complaint in subject.startup.complaints:
        path = find_file(subject.root, complaint.where) if "/" not in complaint.where else None
        if path and path not in subject.shipped and complaint.what.endswith(REFUSING):
            what = f"systemd refuses {complaint.where}: {complaint.what}"
            hint = "correct it; `systemd-analyze verify` in the image shows the error"
            yield fault(what, Evidence(path, said=complaint.what), hint=hint)
        if not complaint.where.startswith(("/etc/", "/usr/", "/lib/")):
            continue
        if not REFUSED.search(complaint.what):
            continue
        say = warning if complaint.where in subject.shipped else fault
        what = f"systemd rejects a line of {complaint.where}: {complaint.what}"
        hint = "correct it; man systemd.directives lists every key and its section"
        yield say(what, Evidence(complaint.where, said=complaint.what), hint=hint)


def prove_stopped(subject: Subject) -> Findings:
    """Faults of enabled units that another one stops, or that a node without a disk does not start.

    `Requires=` and similar keys wait for a mount, but not every node has the disk.
    """
    startup = subject.startup
    for name in subject.enabled:
        unit = startup.units.get(name)
        if unit is None or unit.state != systemd.LOADED:
            continue
        for other in unit.firsts("ConflictedBy"):
            rival = startup.units.get(other)
            triggers = set(rival.firsts("TriggeredBy") if rival else ())
            if other in startup.jobs or triggers & startup.jobs:
                by = f", which {min(triggers)} starts," if triggers & startup.jobs else ""
                what = f"{other}{by} stops {name}: Conflicts="
                where = Evidence(place_of(startup, other), said=f"Conflicts={name}")
                yield fault(what, where, hint="remove that line, or do not start the other unit")
        required = [each for key in BINDING for each in unit.firsts(key)]
        mounts = [m for m in required if m.endswith(".mount") and m not in LASTING]
        if mounts and name.removesuffix(".service") in REACHED_BY:
            yield fault(
                f"{name} does not start on a node without {mounts[0]}: nobody can reach that node",
                *(Evidence(path) for path in unit.paths[1:] or unit.paths),
                hint="use After= and WantsMountsFor= instead of requiring the mount",
            )


def prove_masked(subject: Subject) -> Findings:
    for name, why in NEEDED.items():
        for folder in FOLDERS:
            path = f"{folder}/{name}"
            if subject.root.lies(path):
                if subject.root.link_at(path) == "/dev/null" or not subject.root.text(path):
                    what = f"{name} is masked: {why}"
                    yield fault(what, Evidence(path, said="/dev/null"), hint="remove that link")
                break
        for word in masks(subject):
            if word.value in (name, name.removesuffix(".service")):
                yield fault(f"{name} is masked: {why}", word.evidence, hint="remove that parameter")


def masks(subject: Subject) -> list[KernelWord]:
    """The words that mask a unit (systemd-debug-generator(8))."""
    return [word for word in subject.words if word.key == "systemd.mask"]


def starts_otherwise(startup: systemd.Startup, name: str) -> bool:
    """Whether a unit starts under another name, or on demand."""
    unit = startup.units.get(name)
    if unit is None or unit.state != systemd.LOADED:
        return False
    wanting = {each for key in systemd.WANTING for each in unit.firsts(key)}
    return unit.name in startup.jobs or (bool(wanting) and not wanting & BOOT)


def not_started(subject: Subject, missing: list[str]) -> Finding:
    """The fault of enabled units that do not start, with the reason if known."""
    masked = [word.text for word in masks(subject) if word.value in missing]
    default = subject.startup.units.get(systemd.DEFAULT)
    if masked:
        where = Evidence(CMDLINE, said=" ".join(masked))
        why, hint = "the command line masks it", f"remove {masked[0]} (cmdline:)"
    elif default and default.name not in ("multi-user.target", "graphical.target"):
        where = Evidence("/etc/systemd/system/default.target", said=default.name)
        why = f"the default target is {default.name}"
        hint = "remove /etc/systemd/system/default.target, or make it a link to multi-user.target"
    else:
        unit = subject.startup.units.get(missing[0])
        where = Evidence(place_of(subject.startup, missing[0]), said=state_of(unit))
        why, hint = state_of(unit), "enable it (overlay key units:), and do not mask it"
    verbs = ("is", "does") if len(missing) == 1 else ("are", "do")
    what = f"{some(missing)} {verbs[0]} enabled, but {verbs[1]} not start: {why}"
    return fault(what, where, hint=hint)


def state_of(unit: systemd.LoadedUnit | None) -> str:
    """Why a unit does not start, as far as systemd reports it."""
    if unit is None or unit.state == "not-found":
        return "the unit does not exist"
    if unit.state == "loaded":
        return "no unit that starts at boot wants it"
    return f"systemd reports it as {unit.state}"


def place_of(startup: systemd.Startup, unit: str) -> str:
    found = startup.units.get(unit)
    return found.paths[0] if found and found.paths else f"/etc/systemd/system/{unit}"


def prove_words(subject: Subject) -> Findings:
    remove = "remove that parameter (cmdline:)"
    for word in subject.words:
        value = word.value
        if word.key in INITS and not value.endswith("/systemd") and value != "/sbin/init":
            yield fault(f"the node runs {value} instead of systemd", word.evidence, hint=remove)
        target = RUNLEVELS.get(word.text, value if word.key == "systemd.unit" else "")
        if target in ("rescue.target", "emergency.target", "reboot.target", "poweroff.target"):
            what = f"the node starts {target}, in which no service runs"
            yield fault(what, word.evidence, hint=remove)


def prove_ports(subject: Subject) -> Findings:
    for unit, kind, line in engine_lines(subject):
        port = line.value(kind.model.settings, "port")
        if port is None or not port.value.isdecimal():
            continue
        for where in port_users(subject, unit, port.value):
            what = f"{unit.name} cannot listen on port {port.value}: something else has it"
            yield fault(what, where, hint="give one of them another port")


def prove_listeners(subject: Subject) -> Findings:
    """Faults of a site's services whose command lines open a port that no overlay declares.

    The port of an engine is for the question `services`; the boot test sees what is open.
    """
    declared = subject.image.listens
    engines = {engine.unit for engine in subject.expectations.engines}
    for unit in subject.startup.starting() if declared is not None else ():
        where = systemd.said_in(subject.root, unit, "ExecStart")
        if where.path in subject.shipped or engines & {unit.name, template(unit.name)}:
            continue
        for name, variable in environment_of(subject, unit).items():
            found = ANYWHERE.fullmatch(variable.value) if TELLS.search(name) else None
            if found and f"{found['port']}/tcp" not in (declared or ()):
                what = f"{unit.name} listens on {found['port']}/tcp ({name}={variable.value}), "
                what += "which no overlay declares"
                hint = "declare the port (listens:), or let it listen on 127.0.0.1"
                yield fault(what, variable.evidence(name), hint=hint)
        for port in map(listened_port, unit.commands.get("ExecStart", ())):
            if port and f"{port}/tcp" not in (declared or ()):
                what = f"{unit.name} listens on {port}/tcp, which no overlay declares"
                hint = "declare the port (listens:), let it listen on 127.0.0.1, or disable it"
                yield fault(what, where, hint=hint)


def listened_port(words: Sequence[str]) -> str:
    """The port that a command line opens for other machines, "" if it says none."""
    line = f"{' '.join(words)} "[:MOST_LINE]
    found = None if any(map(is_loopback, BETWEEN.split(line))) else SERVES.search(line)
    if found is None and ADDRESS.search(line):
        found = NUMBER.search(line)
    return found["port"] if found else ""


def port_users(subject: Subject, unit: systemd.LoadedUnit, port: str) -> Iterator[Evidence]:
    for name in sorted(subject.startup.units):
        other = subject.startup.units[name]
        if other.name in (unit.name, "") or name != other.name or name not in subject.startup.jobs:
            continue
        place = other.paths[0] if other.paths else name
        listed = [value for key in ("ListenStream", "Listen") for value in other.every(key)]
        taken = [value for value in listed if re.search(rf"(^|[:\]\s]){port}(\s|$)", value)]
        for words in other.commands.get("ExecStart", ()):
            if LISTENS.search(f"{' '.join(words)} ".replace(port, PORT)):
                taken.append(" ".join(words))
        if taken:
            yield Evidence(place, said=taken[0])
    for path in subject.root.glob(*FILES_OF_SSHD):
        if port in SSHD.findall(subject.root.text(path)):
            yield Evidence(path, said=f"Port {port}")
