# SPDX-License-Identifier: Apache-2.0
"""serve/reports.log: the web server's log of reports and tickets, read in bounded pieces; and the
last boots of a node, with the time of each stage.

    {"time":"...","address":"...","uri":"/report/TICKET/GIVEN/PROFILE/VERSION?stage=...","agent":"..."}
    {"time":"...","address":"...","uri":"/report/health?...","agent":"..."}  (health_report.py)
    {"time":"...","address":"...","uri":"/nodes/MAC/boot.ipxe","ticket":"..."}

Time and address come from the web server; the rest of a report is not trusted.  A boot begins when
the node fetches its script with a ticket (tickets.py); reports with that ticket belong to it.  Only
root may read the log.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.files import place_file, plain_file
from imagebuilder.nodes.config import ID, TICKET
from imagebuilder.nodes.evidence.seen import (
    PCI,
    DamagedRecordError,
    Seen,
    parse_record,
    read_bounded,
)
from imagebuilder.nodes.types import Node
from imagebuilder.tree import HYPHENED, MAC, NAME, Tree
from imagebuilder.untrusted import parse_request

PIECE = 4 * 1024**2  # bytes that are read at a time
SETTLED = 2.0  # seconds
SECRET = r"[0-9a-f]{32}"  # nginx's $request_id
LINE = re.compile(
    rb'\{"time":"(?P<time>[0-9T:+-]{19,32})","address":"(?P<address>[0-9A-Fa-f.:]{2,45})",'
    rb'"uri":"(?P<uri>[^"\\]{1,8192})",'
    rb'(?:"ticket":"(?P<handed>' + SECRET.encode() + rb')"|"agent":".*")\}'
)  # fmt: skip
REPORT = re.compile(
    rf"/report/(?:(?:{TICKET}|(?P<secret>{SECRET}))/)?(?:(?P<given>{ID.pattern})/)?"
    rf"(?P<profile>{NAME})/(?P<version>{NAME})"
)
SCRIPT = re.compile(rb"/nodes/(" + HYPHENED.pattern.encode() + rb")/boot\.ipxe")
WITH_HEALTH = b"/report/health?"
WITH_TICKET = re.compile(rb"/report/(" + SECRET.encode() + rb")/")
MOST = 4 * 1024**2  # of the last bytes of each log are read
BOOTS = 8


@dataclass(frozen=True)
class LogMark:
    """How far the log was read."""

    inode: int = 0
    offset: int = 0


def read_mark(path: Path) -> LogMark:
    """The recorded position; the start without a record, or if it is damaged."""
    try:
        value = parse_record(read_bounded(path, 200) or b"")
    except DamagedRecordError:
        return LogMark()
    if isinstance(value, list) and len(value) == 2:
        inode, offset = value
        if isinstance(inode, int) and isinstance(offset, int) and offset >= 0:
            return LogMark(inode, offset)
    return LogMark()


def write_mark(path: Path, mark: LogMark) -> None:
    place_file(path, json.dumps([mark.inode, mark.offset]).encode())


def read_piece(log: Path, mark: LogMark) -> tuple[list[bytes], LogMark]:
    """The next complete lines after a mark, at most PIECE bytes, and the mark after them.

    A rotated log (serve/rotate.py) is read to its end first, which is reached when the web server
    writes to the new one and has not written to the old one for a while.  A truncated log is read
    from its start.
    """
    if mark.inode in (0, inode_of(old := old_log(log))) and old.exists():
        lines, behind = read_file(old, mark)
        if behind != mark or not size_of(log) or not is_settled(old):
            return lines, behind
    return read_file(log, mark)


def read_file(path: Path, mark: LogMark) -> tuple[list[bytes], LogMark]:
    """The next complete lines of one file.

    A piece without a newline does not come from the web server, whose lines are shorter: it is
    skipped.
    """
    try:
        with plain_file(path) as stream:
            info = os.fstat(stream.fileno())
            known = mark.inode == info.st_ino and mark.offset <= info.st_size
            start = mark.offset if known else 0
            stream.seek(start)
            content = stream.read(PIECE)
    except FileNotFoundError:
        return [], mark
    end = content.rfind(b"\n") + 1
    if not end and len(content) == PIECE:
        return [], LogMark(info.st_ino, start + PIECE)
    return content[:end].splitlines(), LogMark(info.st_ino, start + end)


def old_log(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def inode_of(path: Path) -> int:
    """The inode number of a file; -1 if it does not exist."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1


def size_of(path: Path) -> int:
    """The size of a file; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def is_settled(path: Path) -> bool:
    """Whether nothing was written to a file recently: a web server that reloads still may."""
    try:
        return abs(time.time() - path.stat().st_mtime) >= SETTLED
    except FileNotFoundError:
        return True


def parse_seen_report(uri: str, address: str, time: str) -> tuple[str, Seen] | None:
    """The secret and the record in an unverified report; None if it is not a report."""
    request = parse_request(uri)
    match = REPORT.fullmatch(request.path)
    mac = request.words.get("node", "").lower()
    if match is None or not MAC.fullmatch(mac):
        return None
    pci = request.words.get("pci", "")
    seen = Seen(
        mac=mac,
        node="",
        profile=match["profile"],
        version=match["version"],
        address=address,
        stage=request.words.get("stage", ""),
        root=request.words.get("root", ""),
        first=time,
        last=time,
        given=match["given"] or "",
        pci=pci if PCI.fullmatch(pci) else "",
    )
    return match["secret"] or "", seen


def parse_time(text: bytes) -> str:
    """A time of the web server in UTC; empty if invalid."""
    try:
        return datetime.fromisoformat(text.decode()).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return ""


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
