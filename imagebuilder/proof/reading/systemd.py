# SPDX-License-Identifier: Apache-2.0
"""The units of an image as its own systemd merges them, and which of them start at boot.

`systemd-analyze verify` loads units as the first process does, with every drop-in folder and every
generator, and with SYSTEMD_LOG_LEVEL=debug prints each of its arguments (unit_dump() of
src/core/unit-serialize.c) and each job of the initial transaction.  SYSTEMD_PROC_CMDLINE replaces
the builder's command line with the image's.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.config import assignments
from imagebuilder.proof.reading.texts import unquoted, whole
from imagebuilder.proof.reading.units import FOLDERS, UnitSettings, service_lines
from imagebuilder.root import Root

if TYPE_CHECKING:
    from imagebuilder.proof.subject import Subject

SYSTEMD = "/usr/lib/systemd/systemd"
DEFAULT, SLICE = "default.target", "system.slice"
SECONDS = 60
# console-prefixed: each line begins with its facility and level, as in syslog(3).
VERIFY = (
    "env", "HOME=/", "SYSTEMD_LOG_LEVEL=debug", "SYSTEMD_LOG_TARGET=console-prefixed",
)  # fmt: skip
WARNING = 4
HEAD = re.compile(r"\s*(?:→|->) Unit (?P<name>\S+):$")
COMMANDS = re.compile(r"\s*(?:→|->) (?P<key>Exec\w+):$")
MESSAGE = re.compile(
    r"<(?P<priority>\d+)>(?:(?P<file>/[^:]+)(?::\d+)?: |(?P<unit>[^\s:]+\.[a-z]+): )?(?P<what>.*)"
)
JOB = re.compile(r"Installed new job (?P<unit>\S+)/start as \d+")
BEGINS = re.compile(r"Creating (?P<unit>\S+)/start job")
CYCLE = re.compile(r"Found (ordering cycle|dependency on)")
# What systemd 258 and later say at the level of information only (config_parse_warn_compat()).
REMOVED = re.compile(r"Support for option (?P<key>\w+)= has been removed and it is ignored")
# A file's name before its content, in what `cat-config` prints.
FILE = re.compile(r"^# (/\S+\.conf)$", re.MULTILINE)
# The keys of programs that a start of a service runs.
STARTING = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost")
SERVER_FAMILIES = ("AF_INET", "AF_INET6")
LOADED = "loaded"
WANTING = ("WantedBy", "RequiredBy", "UpheldBy")
DROPPED = re.compile(r"Job (?P<unit>\S+)/\w+ deleted to break ordering cycle")


@dataclass(frozen=True)
class LoadedUnit(UnitSettings):
    """A unit as systemd merged it.

    `state` is loaded, masked, not-found, bad-setting or error.  `paths` are its file and its
    drop-ins, in the order they are read; those of generators are not in the image.  `values` has
    every value of a setting, specifiers resolved, sizes in bytes; `commands` the words of each
    command line by key, variables as they are written.
    """

    commands: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return self.last("Unit Load State")

    @property
    def place(self) -> str:
        """The file of it that is read last, "/" if none is known."""
        return self.paths[-1] if self.paths else "/"

    @property
    def lines(self) -> Iterator[tuple[str, ...]]:
        return (words for each in self.commands.values() for words in each if words)

    def started(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The command lines that a start of it runs, each with its key."""
        return ((key, words) for key in STARTING for words in self.commands.get(key, ()) if words)


@dataclass(frozen=True)
class Complaint:
    """A warning, an error or what has no effect: its file or unit, or "", and the message."""

    where: str
    what: str


@dataclass(frozen=True)
class Startup:
    """What starts at boot.

    `jobs` are the units that default.target pulls in, `dropped` those that were left out to break
    an ordering cycle, each with the cycle.  `units` are the checked ones by name.
    """

    jobs: frozenset[str]
    dropped: Mapping[str, str]
    units: Mapping[str, LoadedUnit]
    complaints: tuple[Complaint, ...]

    def booting(self) -> Iterator[tuple[str, LoadedUnit]]:
        """The units that default.target pulls in, each with a name that it has."""
        return ((name, self.units[name]) for name in sorted(self.jobs & self.units.keys()))

    def starting(self) -> Iterator[LoadedUnit]:
        """The services that start at boot, or later for a socket, a timer, a path or a device."""
        for name in sorted(self.units):
            unit = self.units[name]
            # An alias names a unit that is listed under its own name too.
            if unit.name != name or not name.endswith(".service") or unit.state != "loaded":
                continue
            wanting = (each for key in WANTING for each in unit.firsts(key))
            # What udev starts when a device is there (systemd.device(5)).
            is_late = any(each.endswith((".mount", ".device")) for each in wanting)
            if not self.jobs.isdisjoint((name, *unit.firsts("TriggeredBy"))) or is_late:
                yield unit


@dataclass(frozen=True)
class ConfigLine:
    """An assignment, and the file that has it."""

    section: str
    key: str
    value: str
    path: str

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.path, self.section, said=f"{self.key}={self.value}")


def read_config(subject: Subject, name: str) -> Iterator[ConfigLine]:
    """The assignments of a file such as `systemd/system.conf` and its drop-ins, in order."""
    shown = subject.run(["systemd-analyze", "cat-config", name]).stdout
    _, *files = FILE.split(shown)
    for path, text in zip(files[::2], files[1::2], strict=True):
        for section, key, value in assignments(text):
            yield ConfigLine(section, key, value, path)


def last_lines(subject: Subject, name: str) -> dict[str, ConfigLine]:
    """The last assignment of each key in such a file."""
    return {line.key: line for line in read_config(subject, name)}


def read_startup(subject: Subject) -> Startup:
    """What systemd reports, without units if it failed or the root has no systemd."""
    if not subject.root.is_file(SYSTEMD):
        return Startup(frozenset(), {}, {}, ())
    names = dict.fromkeys((DEFAULT, *subject.expectations.units, SLICE, *enabled(subject)))
    words = ["systemd-analyze", "--generators=yes", "--man=no", "verify", *names]
    cmdline = f"SYSTEMD_PROC_CMDLINE={' '.join(subject.cmdline)}"
    done = subject.run([*VERIFY, cmdline, *words], seconds=SECONDS)
    units = {unit.name: unit for unit in parse_units(done.stdout)}
    jobs, dropped, complaints = parse_log(done.stderr)
    aliases = {alias: unit for unit in units.values() for alias in unit.words("Alias")}
    return Startup(jobs, dropped, units | aliases, complaints)


def enabled(subject: Subject) -> Iterator[str]:
    """The services that a unit wants by a link, and those in the administrator's folders."""
    for folder in FOLDERS:
        for name in subject.root.names(folder):
            if name.endswith((".wants", ".requires", ".upholds")):
                found = subject.root.names(f"{folder}/{name}")
                yield from (each for each in found if each.endswith((".service", ".socket")))
            elif name.endswith(".service") and not folder.startswith("/usr/lib/"):
                yield name


def parse_units(text: str) -> Iterator[LoadedUnit]:
    name, lines = "", list[str]()
    for line in (*text.splitlines(), "-> Unit end:"):
        if head := HEAD.match(line):
            if name:
                yield parse_unit(name, lines)
            name, lines = head["name"], []
        else:
            lines.append(line)


def parse_unit(name: str, lines: Iterable[str]) -> LoadedUnit:
    values: dict[str, list[str]] = {}
    commands: dict[str, list[tuple[str, ...]]] = {}
    key = ""
    for line in lines:
        if head := COMMANDS.match(line):
            key = head["key"]
            continue
        setting, _, value = line.strip().partition(":")
        if setting == "Command Line" and key:
            commands.setdefault(key, []).append(command_words(value))
        else:
            values.setdefault(setting, []).append(value.strip())
    paths = (*values.get("Fragment Path", ()), *values.get("DropIn Path", ()))
    return LoadedUnit(
        name,
        tuple(paths),
        {setting: tuple(each) for setting, each in values.items()},
        {each: tuple(found) for each, found in commands.items()},
    )


def command_words(text: str) -> tuple[str, ...]:
    """The words of a command line in a dump, which is quoted for a shell (quote_command_line())."""
    return tuple(word.replace("\\$", "$") for word in unquoted(text))


def parse_log(text: str) -> tuple[frozenset[str], dict[str, str], tuple[Complaint, ...]]:
    """The jobs of default.target (the first argument); what was dropped; complaints, each once."""
    jobs: set[str] = set()
    dropped: dict[str, str] = {}
    complaints: dict[Complaint, None] = {}
    started, cycle = 0, ""
    for line in text.splitlines():
        started += bool(BEGINS.search(line))
        if (job := JOB.search(line)) and started == 1:
            jobs.add(job["unit"])
        message = MESSAGE.fullmatch(line)
        if message is None:
            continue
        what, where = message["what"], message["file"] or message["unit"]
        if whole(message["priority"]) % 8 > WARNING and not REMOVED.match(what):
            continue
        if lost := DROPPED.search(what):
            dropped.setdefault(lost["unit"], cycle or what)
            cycle = ""
        elif CYCLE.match(what):
            cycle = f"{cycle} {what}".strip()
        elif where:
            complaints.setdefault(Complaint(where, what))
    return frozenset(jobs), dropped, tuple(complaints)


def find_loaded(startup: Startup, name: str) -> LoadedUnit | None:
    """The unit, or an instance of the template; None if systemd could not load it."""
    begin, _, end = name.partition("@.")
    unit = startup.units.get(name) or next(
        (u for n, u in startup.units.items() if end and n.startswith(f"{begin}@")), None
    )
    return unit if unit and unit.state == LOADED else None


def said_in(root: Root, unit: LoadedUnit, key: str) -> Evidence:
    """The last line of the unit's files that sets a key."""
    for path in reversed(unit.paths):
        for line in reversed(root.text(path).splitlines()):
            if line.partition("=")[0].strip() == key:
                return Evidence(path, said=line.strip())
    value = " ".join(unit.every(key))
    return Evidence(unit.paths[0] if unit.paths else posixpath.sep, said=f"{key}={value}")


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
