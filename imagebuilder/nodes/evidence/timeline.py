# SPDX-License-Identifier: Apache-2.0
"""A node's last boots, with the time of each stage, from serve/reports.log.

A boot begins when the node fetches its script with a ticket (tickets.py); reports with that ticket
belong to this boot.  Only root may read the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.files import plain_file
from imagebuilder.nodes.evidence.report_log import (
    LINE,
    SCRIPT,
    WITH_TICKET,
    old_log,
    parse_seen_report,
    parse_time,
)
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree

MOST = 4 * 1024**2  # of the last bytes of each log are read
BOOTS = 8


@dataclass(frozen=True)
class BootStep:
    """A stage that the initrd reported, and when (ISO 8601 in UTC)."""

    stage: str
    at: str

    def as_json(self) -> dict[str, Json]:
        return {"stage": self.stage, "at": self.at}


@dataclass(frozen=True)
class ReportedBoot:
    """One boot: `begun` is when its script was fetched; `release` is what its initrd reports, or
    empty."""

    begun: str
    address: str
    release: str = ""
    steps: tuple[BootStep, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {
            "begun": self.begun,
            "address": self.address,
            "release": self.release,
            "steps": [step.as_json() for step in self.steps],
        }


def find_boots(tree: Tree, node: Node, most: int = BOOTS) -> tuple[ReportedBoot, ...]:
    """The last boots of a node, the newest first.  Raises PermissionError."""
    boots: dict[str, ReportedBoot] = {}
    for log in (old_log(tree.reports_log), tree.reports_log):
        for line in read_lines(log):
            take_line(line, node, boots)
    return tuple(reversed([*boots.values()][-most:]))


def take_line(line: bytes, node: Node, boots: dict[str, ReportedBoot]) -> None:
    """Add what a line of the log says about the boots of a node, by ticket."""
    if (match := LINE.fullmatch(line)) is None:
        return
    if handed := match["handed"]:
        script = SCRIPT.fullmatch(match["uri"])
        if script and script[1].decode().replace("-", ":") in node.macs:
            begun = parse_time(match["time"])
            boots.setdefault(handed.decode(), ReportedBoot(begun, match["address"].decode()))
        return
    # A cheap test first: most of the log is about other nodes.
    ticket = WITH_TICKET.match(match["uri"])
    if ticket is None or (boot := boots.get(ticket[1].decode())) is None:
        return
    address, time = match["address"].decode(), parse_time(match["time"])
    report = parse_seen_report(match["uri"].decode(errors="replace"), address, time)
    if report is None:
        return
    step = BootStep(report[1].stage, time)
    boots[report[0]] = replace(boot, release=str(report[1].release), steps=(*boot.steps, step)[:32])


def read_lines(path: Path) -> Iterator[bytes]:
    """The last lines of a log, none without a log.  Raises PermissionError."""
    try:
        with plain_file(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - MOST))
            lines = stream.read(MOST).split(b"\n")
    except FileNotFoundError:
        return
    yield from lines[1 if size > MOST else 0 : -1]
