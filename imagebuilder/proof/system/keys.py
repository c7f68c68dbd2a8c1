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

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import PARENTS, assignments
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.unread import site_files
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
ENTRY = re.compile(rb"([A-Z][A-Za-z0-9]{1,40})\.([A-Z0-9][A-Za-z0-9]{1,60})(?=\0)")
# A program with fewer has its table in another form.
FEWEST = 4
FOREIGN = "X-"

Known = Mapping[str, frozenset[str]]


def prove_keys(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each setting, or for each heading that its daemon does not know."""
    for program, patterns in READ_BY.items():
        paths = [
            path
            for pattern in patterns
            for parent in PARENTS
            for path in site_files(subject, f"{parent}/systemd/{pattern}")
        ]
        known = known_settings(subject.root, program) if paths else {}
        if sum(map(len, known.values())) >= FEWEST:
            daemon = program.rpartition("/")[2].replace("udevadm", "udev")
            for path in paths:
                yield from prove_file(subject.root, path, known, daemon)


def known_settings(root: Root, program: str) -> Known:
    """The settings of a program by section; empty if it is not in the image."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    data = root.map(program) if root.is_file(program) else None
    for section, key in ENTRY.findall(data or b""):
        found[section.decode()].add(key.decode())
    return {section: frozenset(keys) for section, keys in found.items()}


def prove_file(root: Root, path: str, known: Known, daemon: str) -> Iterator[Finding]:
    told: set[str] = set()
    for section, key, value in assignments(root.text(path)):
        if section.startswith(FOREIGN) or key.startswith(FOREIGN) or not section:
            continue
        line = f"{key}={value}"
        if section not in known and section not in told:
            told.add(section)
            what = f"{line} of {path} has no effect: {daemon} knows no section [{section}]"
            hint = f"write {meant(section, known)}"
            yield SAY.warning(what, Evidence(path, f"[{section}]", said=line), hint=hint)
        elif section in known and key not in known[section]:
            what = f"{line} of {path} has no effect: {daemon} knows no {key}= in [{section}]"
            elsewhere = [other for other, keys in known.items() if key in keys]
            if elsewhere:
                hint = f"put it below {' or '.join(f'[{each}]' for each in sorted(elsewhere)[:3])}"
            else:
                hint = f"write {meant(key, known[section])}"
            yield SAY.warning(what, Evidence(path, f"[{section}]", said=line), hint=hint)


def meant(word: str, known: Iterable[str]) -> str:
    """The word of the program that comes next to `word`."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return near[0] if near else f"a name of the manual page: this version has no {word}"
