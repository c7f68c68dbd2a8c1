# SPDX-License-Identifier: Apache-2.0
"""Settings of systemd that have no effect: daemons log the line at boot or say nothing, and go on.

`systemd-analyze verify` reads units alone.  Each daemon has a table of all its settings, made by
gperf(1), whose entries stand in the program as text: `Network.Address`, `Journal.SystemMaxUse`.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from mmap import mmap

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading.config import PARENTS, assignments
from imagebuilder.proof.reading.scripts import site_files
from imagebuilder.proof.reading.systemd import REMOVED
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# What each program reads, below the folders of systemd's settings.
READ_BY = {
    "/usr/lib/systemd/systemd-networkd": (
        "network/*.network", "network/*.network.d/*.conf", "network/*.netdev",
        "network/*.netdev.d/*.conf", "networkd.conf", "networkd.conf.d/*.conf",
    ),
    "/usr/bin/udevadm": ("network/*.link", "network/*.link.d/*.conf"),
    "/usr/lib/systemd/systemd-journald": ("journald.conf", "journald.conf.d/*.conf"),
    "/usr/lib/systemd/systemd-logind": ("logind.conf", "logind.conf.d/*.conf"),
    "/usr/lib/systemd/systemd-resolved": (
        "resolved.conf", "resolved.conf.d/*.conf", "dnssd/*.dnssd",
    ),
    "/usr/lib/systemd/systemd-timesyncd": ("timesyncd.conf", "timesyncd.conf.d/*.conf"),
}  # fmt: skip
ENTRY = re.compile(rb"([A-Z0-9][A-Za-z0-9-]{1,40})\.([A-Z0-9][A-Za-z0-9-]{1,60})(?=\0)")
# A program with fewer has its table in another form.
FEWEST = 4
FOREIGN = "X-"
# The one section of each file, by its manual page (timesyncd.conf(5) and so on).
SECTIONS = {
    "coredump.conf": "Coredump",
    "journald.conf": "Journal",
    "logind.conf": "Login",
    "oomd.conf": "OOM",
    "pstore.conf": "PStore",
    "resolved.conf": "Resolve",
    "sleep.conf": "Sleep",
    "system.conf": "Manager",
    "timesyncd.conf": "Time",
    "user.conf": "Manager",
}
# The settings that took their place (systemd.resource-control(5)).
SUCCESSORS = {
    "MemoryLimit": "MemoryMax",
    "(Startup|)CPUShares": r"\1CPUWeight",
    "(Startup|)BlockIOWeight": r"\1IOWeight",
    "BlockIODeviceWeight": "IODeviceWeight",
    "BlockIO(Read|Write)Bandwidth": r"IO\1BandwidthMax",
}
FOLDER = re.compile(
    r"(?P<unit>.+\.(?P<kind>service|socket|target|timer|path))\.(d|wants|requires|upholds)"
)
OF_UNITS = (".d", ".wants", ".requires", ".upholds")
NEAR = 0.85
MOST = 50  # folders whose unit is guessed: each is compared with every unit


def prove_keys(subject: Subject) -> Findings:
    """Warnings, one for each setting, or for each heading that its daemon does not know."""
    for program, patterns in READ_BY.items():
        globs = (f"{parent}/systemd/{pattern}" for pattern in patterns for parent in PARENTS)
        paths = list(site_files(subject, *globs))
        if paths and (table := read_table(subject.root, program)):
            for path in paths:
                yield from prove_file(subject.root, path, table)


@dataclass(frozen=True)
class SettingTable:
    """The settings of a daemon: `data` is its program, `entries` those found in it by section.

    A linker keeps one text for two, if one is the end of the other: `FairQueueing.Parent` is in
    `QuickFairQueueing.Parent`.
    """

    daemon: str
    data: bytes | mmap
    entries: Mapping[str, frozenset[str]]

    def has_section(self, section: str) -> bool:
        return section in self.entries or self.data.find(f"{section}.".encode()) >= 0

    def has(self, section: str, key: str) -> bool:
        return self.data.find(f"{section}.{key}\0".encode()) >= 0

    def sections_of(self, key: str) -> list[str]:
        return sorted(section for section, keys in self.entries.items() if key in keys)


def read_table(root: Root, program: str) -> SettingTable | None:
    """The table of a program; None if the image has no such program, or it has none."""
    data = root.map(program) if root.is_file(program) else None
    found: defaultdict[str, set[str]] = defaultdict(set)
    for section, key in ENTRY.findall(data or b""):
        found[section.decode()].add(key.decode())
    if data is None or sum(map(len, found.values())) < FEWEST:
        return None
    daemon = program.rpartition("/")[2].replace("udevadm", "udev")
    return SettingTable(daemon, data, {name: frozenset(keys) for name, keys in found.items()})


def prove_file(root: Root, path: str, table: SettingTable) -> Findings:
    told: set[str] = set()
    for section, key, value in assignments(root.text(path)):
        if not (section and key) or section.startswith(FOREIGN) or key.startswith(FOREIGN):
            continue
        line = f"{key}={value}"
        where = Evidence(path, f"[{section}]", said=line)
        if not table.has_section(section):
            if section not in told:
                told.add(section)
                what = f"{line} of {path} has no effect: {table.daemon} knows no section "
                hint = f"write {meant(section, table.entries)}"
                yield warning(f"{what}[{section}]", where, hint=hint)
        elif not table.has(section, key):
            what = f"{line} of {path} has no effect: {table.daemon} knows no {key}= in [{section}]"
            others = [f"[{each}]" for each in table.sections_of(key)][:3]
            known = table.entries.get(section, frozenset())
            hint = f"put it below {' or '.join(others)}" if others else f"write {meant(key, known)}"
            yield warning(what, where, hint=hint)


def meant(word: str, known: Iterable[str]) -> str:
    """The word of the program that comes next to `word`."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return near[0] if near else f"a name of the manual page: this version has no {word}"


def prove_sections(subject: Subject) -> Findings:
    for name, section in SECTIONS.items():
        globs = (f"{p}/systemd/{name}{end}" for p in PARENTS for end in ("", ".d/*.conf"))
        for path in site_files(subject, *globs):
            text = subject.root.text(path)
            lost = {s: f"{k}={v}" for s, k, v in assignments(text) if s != section}
            for other, said in lost.items():
                if not other.startswith(FOREIGN):
                    heading = f"[{other}]" if other else "no heading"
                    what = f"{said} of {path} has no effect: it stands below {heading}, "
                    what += f"and systemd reads the section [{section}] alone"
                    hint = f"put it below [{section}]"
                    yield warning(what, Evidence(path, other, said=said), hint=hint)


def prove_removed(subject: Subject) -> Findings:
    """Warnings of a site's lines that systemd reports as removed.

    A unit for several releases of systemd has the new setting as well.
    """
    for complaint in subject.startup.complaints:
        found = REMOVED.match(complaint.what)
        key, path = found["key"] if found else "", complaint.where
        new = next((re.sub(old, by, key) for old, by in SUCCESSORS.items()
                    if re.fullmatch(old, key)), "")  # fmt: skip
        if not new or path in subject.shipped:
            continue
        lines = [(name, value) for _, name, value in assignments(subject.root.text(path))]
        if any(name == new for name, _ in lines):
            continue
        said = next((f"{name}={value}" for name, value in lines if name == key), key)
        what = f"{said} of {path} has no effect: this systemd no longer has {key}=, and what the "
        what += "unit starts has no such limit"
        yield warning(what, Evidence(path, said=said), hint=f"set {new}= instead")


def prove_namesakes(subject: Subject) -> Findings:
    """Warnings: systemd reads such a folder only for a unit of that name (systemd.unit(5))."""
    folders = {f"{parent}/systemd/system" for parent in PARENTS}
    files = {name for folder in folders for name in subject.root.names(folder)}
    units = {name for name in files | {*subject.startup.units} if not name.endswith(OF_UNITS)}
    told: set[str] = set()
    for folder in sorted(folders):
        for path in site_files(subject, f"{folder}/*.*/*"):
            place = posixpath.dirname(path)
            match = FOLDER.fullmatch(posixpath.basename(place))
            if match is None or place in told or is_for_some(match["unit"], match["kind"], units):
                continue
            told.add(place)
            meant = units if len(told) <= MOST else ()
            near = get_close_matches(match["unit"], meant, n=1, cutoff=NEAR)
            what = f"{place} has no effect: the image has no unit {match['unit']}"
            hint = f"rename it, if {near[0]} is meant" if near else "remove it, or install the unit"
            yield warning(what, Evidence(path), hint=hint)


def is_for_some(unit: str, kind: str, units: set[str]) -> bool:
    """Whether there is such a unit, its template, or one whose name begins so: `llama-.service`."""
    name, is_instance, _ = unit.partition("@")
    if unit in units or (is_instance and f"{name}@.{kind}" in units):
        return True
    begin = unit.removesuffix(f".{kind}")
    return begin.endswith("-") and any(
        each.startswith(begin) and each.endswith(f".{kind}") for each in units
    )
