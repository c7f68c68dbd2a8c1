# SPDX-License-Identifier: Apache-2.0
"""The health of a node as it reports it to the boot server, and the last changes of it.

A line of the log of reports:

    /report/health?node=MAC&release=PROFILE@VERSION&boot=ID&uptime=SECONDS&verdict=...&words=...
                   [&readings=...]&sign=

`sign` is the HMAC-SHA256 of everything between `?` and `&sign=` with the ticket of the boot as its
key (tickets.py), so it comes from the node, and from this boot.  The uptime only grows in a boot:
a copy of an older report is refused.  The clock of the node is not used.  Its program is
overlays/compute-node/files/usr/lib/imagebuilder/health.

TREE/health/NODE.json has the changes.  It is written when a report is read (usage.py), and only
after a change: another verdict, other words, another boot.  Numbers in the words change with every
measurement and do not count.
"""

from __future__ import annotations

import hmac
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from imagebuilder.decode import JsonFile
from imagebuilder.files import make_folder, write_file
from imagebuilder.nodes.evidence.seen import (
    READINGS,
    HealthReport,
    find_file,
    parse_readings,
    render_readings,
)
from imagebuilder.nodes.evidence.tickets import Tickets
from imagebuilder.tree import MAC, NAME, ReleaseName, ReleaseText, Tree
from imagebuilder.untrusted import fit

MOST_WORDS = 600  # bytes of the words as they are sent
QUOTED = r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})"
LINE = re.compile(
    (
        rf"/report/health\?(?P<told>node=(?P<mac>{MAC.pattern})"
        rf"&release=(?P<profile>{NAME})@(?P<version>{NAME})"
        r"&boot=(?P<boot>[0-9a-f-]{36})&uptime=(?P<uptime>[0-9]{1,9}\.[0-9]{2})"
        rf"&verdict=(?P<verdict>[a-z]{{1,20}}(?:%20[a-z]{{1,20}}){{0,3}})"
        rf"&words=(?P<words>{QUOTED}{{0,{MOST_WORDS}}})"
        rf"(?:&readings=(?P<readings>{READINGS}))?)&sign=(?P<sign>[0-9a-f]{{64}})"
    ).encode()
)
KEPT = 50  # changes of a node
MOST_BYTES = 256 * 1024
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
ToldHealth = tuple[ReleaseName, HealthReport]


@dataclass(frozen=True)
class SignedHealth:
    """An unverified report; see proved_by()."""

    told: bytes
    sign: str
    mac: str
    release: ReleaseName
    report: HealthReport

    def proved_by(self, tickets: Tickets) -> bool:
        """Whether the owner of that MAC sent it, in the boot that it reported last."""
        return any(
            hmac.compare_digest(sign(ticket.secret, self.told), self.sign)
            for ticket in tickets.of(self.mac)
        )


def sign(secret: str, told: bytes) -> str:
    return hmac.new(secret.encode(), told, "sha256").hexdigest()


def parse_health_report(uri: bytes, time: str) -> SignedHealth | None:
    """The report in a URI; None if it is not a report.  `time` is the web server's."""
    match = LINE.fullmatch(uri)
    if match is None or not time:
        return None
    found = {name: value.decode() for name, value in match.groupdict(b"").items()}
    report = HealthReport(
        verdict=unquote(found["verdict"]),
        words=fit(unquote(found["words"], errors="replace")),
        boot_id=found["boot"],
        uptime=float(found["uptime"]),
        at=time,
        readings=render_readings(parse_readings(found["readings"])) or None,
    )
    release = ReleaseName(found["profile"], found["version"])
    return SignedHealth(match["told"], found["sign"], found["mac"], release, report)


@dataclass(frozen=True)
class HealthChange:
    """A verdict until the next one, and the running release (PROFILE@VERSION)."""

    release: ReleaseText
    report: HealthReport

    def is_told_by(self, release: str, report: HealthReport) -> bool:
        """Whether a report is no change: the same verdict, or a line that is read again."""
        last = self.report
        if report.boot_id != last.boot_id:
            return False
        if report.uptime <= last.uptime:
            return True
        said, before = (NUMBER.sub("#", each.words) for each in (report, last))
        return (release, report.verdict, said) == (self.release, last.verdict, before)


@dataclass(frozen=True)
class HealthHistory:
    """The file, the oldest change first."""

    changes: tuple[HealthChange, ...] = ()


HISTORY = JsonFile(HealthHistory, 1, "the next change of the node's health creates another")


def read_history(tree: Tree, node: str) -> tuple[HealthChange, ...]:
    """The changes of a node, the oldest first; none if the file is damaged."""
    found = find_file(tree.health(node), HISTORY, MOST_BYTES)
    return found.changes if found else ()


def note_health(tree: Tree, node: str, reports: Iterable[ToldHealth]) -> None:
    """Record those reports of a node that are changes, in one step however many there are.

    The caller holds the lock of reports.
    """
    before = read_history(tree, node)
    changes = deque(before, KEPT)
    for release, report in reports:
        if not changes or not changes[-1].is_told_by(str(release), report):
            changes.append(HealthChange(str(release), report))
    if (*changes,) == before:
        return
    path = tree.health(node)
    make_folder(path.parent)
    write_file(path, HISTORY.render(HealthHistory((*changes,))).encode())
