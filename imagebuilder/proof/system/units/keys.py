# SPDX-License-Identifier: Apache-2.0
"""Settings that systemd's daemons do not know: they log the line at boot, and go on without it.

`systemd-analyze verify` reads units alone.  Each daemon has a table of all its settings, made by
gperf(1), whose entries stand in the program as text: `Network.Address`, `Journal.SystemMaxUse`.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import PARENTS, assignments
from imagebuilder.proof.reading.site import site_files
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
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


def prove_keys(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each setting, or for each heading that its daemon does not know."""
    for program, patterns in READ_BY.items():
        paths = [
            path
            for pattern in patterns
            for parent in PARENTS
            for path in site_files(subject, f"{parent}/systemd/{pattern}")
        ]
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


def prove_file(root: Root, path: str, table: SettingTable) -> Iterator[Finding]:
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
                yield SAY.warning(f"{what}[{section}]", where, hint=hint)
        elif not table.has(section, key):
            what = f"{line} of {path} has no effect: {table.daemon} knows no {key}= in [{section}]"
            others = [f"[{each}]" for each in table.sections_of(key)][:3]
            known = table.entries.get(section, frozenset())
            hint = f"put it below {' or '.join(others)}" if others else f"write {meant(key, known)}"
            yield SAY.warning(what, where, hint=hint)


def meant(word: str, known: Iterable[str]) -> str:
    """The word of the program that comes next to `word`."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return near[0] if near else f"a name of the manual page: this version has no {word}"
