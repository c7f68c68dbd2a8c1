# SPDX-License-Identifier: Apache-2.0
"""Which node runs which release: told by the nodes' reports and by who is connected over NFS.

The web server writes a line for each report to serve/reports.log; the last release of each NIC's
owner is in seen/MAC.json.  A release is in use until that node reports another one, or nothing was
seen of the node for thirty days: no report, and no connection from its address to port 2049.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from imagebuilder.errors import HostError, InputError
from imagebuilder.nodes.given import ID
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import run
from imagebuilder.publish.durable import write_file
from imagebuilder.publish.find import ReleaseName
from imagebuilder.store.locks import held
from imagebuilder.tree import Tree

DAYS = 30
NFS_PORT = 2049
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
# What a person's recipe and the store allow in names; nothing that is a path.
REPORT = re.compile(
    rf"/report/(?:(?P<given>{ID.pattern})/)?"
    r"(?P<profile>[a-z0-9][a-z0-9.+-]*)/(?P<version>[A-Za-z0-9][\w.+-]*)"
)
MOST = 200  # characters of a value somebody sent us


@dataclass(frozen=True)
class Seen:
    """What a NIC's owner booted last; times are ISO 8601 in UTC.

    `first` is its first sign with this release, `last` the last one.  `node` is its name in
    nodes.yaml, `root` how it gets its root; both may be empty.  `given` is the ID of what it got
    beside the release (nodes/given.py), empty when its script was from before there were any.
    """

    mac: str
    node: str
    profile: str
    version: str
    address: str
    stage: str
    root: str
    first: str
    last: str
    given: str = ""

    @property
    def release(self) -> ReleaseName:
        return ReleaseName(self.profile, self.version)

    @property
    def name(self) -> str:
        """For people: the node's name, or its MAC."""
        return self.node or self.mac


def note_reports(tree: Tree) -> list[Seen]:
    """Take in the reports that came since the last time; returns the records they changed.

    Lines that are no reports are left out; a log that was rotated or cut short is begun anew.
    """
    log, mark = tree.serve / "reports.log", tree.serve / "reports.offset"
    with held(tree.lock("reports")):
        lines, offset = read_new(log, mark)
        if not lines:
            return []
        nodes = known_nodes(tree)
        found: dict[str, Seen] = {}
        for line in lines:
            if (seen := parse_report(line, nodes)) is not None:
                before = found.get(seen.mac) or read_seen(tree.seen(seen.mac))
                found[seen.mac] = merge(before, seen)
        for seen in found.values():
            write_seen(tree, seen)
        # Last: who is killed before this reads the same lines again, to the same end.
        write_file(mark, json.dumps(offset).encode())
    return list(found.values())


def known_nodes(tree: Tree) -> Nodes:
    """The nodes, for their names; a nodes.yaml with faults is somebody else's to complain about."""
    try:
        return load_nodes(tree)
    except InputError:
        return Nodes()


def read_new(log: Path, mark: Path) -> tuple[list[bytes], list[int]]:
    """The whole lines of `log` behind the place in `mark`, and the next mark (inode, bytes)."""
    try:
        with log.open("rb") as stream:
            info = os.fstat(stream.fileno())
            inode, offset = read_mark(mark)
            if inode != info.st_ino or offset > info.st_size:
                offset = 0
            stream.seek(offset)
            whole = stream.read().rpartition(b"\n")[0]
    except FileNotFoundError:
        return [], []
    return whole.splitlines(), [info.st_ino, offset + len(whole) + bool(whole)]


def read_mark(mark: Path) -> tuple[int, int]:
    """Inode and bytes of the log that were read."""
    try:
        inode, offset = json.loads(mark.read_text())
        return int(inode), int(offset)
    except (OSError, ValueError, TypeError):
        return 0, 0


def parse_report(line: bytes, nodes: Nodes) -> Seen | None:
    """The report in a line of the log; None when it is none.  Anybody may have sent it."""
    try:
        value = json.loads(line)
        address = urlsplit(str(value["uri"]))
        time = datetime.fromisoformat(str(value["time"])).astimezone(UTC).isoformat()
        sender = str(value["address"])
    except (ValueError, KeyError, TypeError):
        return None
    match = REPORT.fullmatch(address.path)
    words = {key: values[-1][:MOST] for key, values in parse_qs(address.query).items()}
    mac = words.get("node", "").lower()
    if match is None or not MAC.fullmatch(mac):
        return None
    node = nodes.find_by_mac(mac)
    return Seen(
        mac=mac,
        node=node.name if node else "",
        profile=match["profile"],
        version=match["version"],
        address=sender,
        stage=words.get("stage", ""),
        root=words.get("root", "") or (node.root if node else ""),
        first=time,
        last=time,
        given=match["given"] or "",
    )


def merge(before: Seen | None, seen: Seen) -> Seen:
    """What is known after a report: the first sign counts from the last change of release."""
    if before is None or before.release != seen.release:
        return seen
    return replace(seen, first=before.first, last=max(before.last, seen.last))


def read_seen(path: Path) -> Seen | None:
    """One record; None when it is missing or damaged."""
    try:
        return Seen(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_seen(tree: Tree, seen: Seen) -> None:
    """Write one record."""
    write_file(tree.seen(seen.mac), json.dumps(asdict(seen)).encode() + b"\n")


def list_seen(tree: Tree) -> list[Seen]:
    """Every record, by MAC."""
    found = (read_seen(path) for path in sorted((tree.path / "seen").glob("[!.]*.json")))
    return [seen for seen in found if seen is not None]


def note_connections(tree: Tree, connected: Iterable[str], now: datetime) -> list[str]:
    """Refresh the records of whoever is connected; returns the addresses nobody reported from."""
    with held(tree.lock("reports")):
        records = list_seen(tree)
        for seen in records:
            if seen.address in connected:
                write_seen(tree, replace(seen, last=now.isoformat()))
    known = {seen.address for seen in records}
    return sorted(set(connected) - known)


def find_connected() -> list[str]:
    """The addresses connected to this host's NFS server; none when ss(8) cannot tell."""
    try:
        said = run(["ss", "-Htn", "state", "established", f"( sport = :{NFS_PORT} )"], check=False)
    except HostError:
        return []
    return parse_connections(said.stdout)


def parse_connections(text: str) -> list[str]:
    """The peers in the output of ss: queues, our address, theirs; IPv4 also when mapped."""
    peers = (line.split()[3] for line in text.splitlines() if len(line.split()) >= 4)
    plain = (peer.rpartition(":")[0].strip("[]").partition("%")[0] for peer in peers)
    return sorted({address.removeprefix("::ffff:") for address in plain})


def in_use(
    tree: Tree, *, days: int = DAYS, now: datetime | None = None
) -> Mapping[ReleaseName, tuple[str, ...]]:
    """The releases that nodes run, with the nodes' names (or MACs)."""
    limit = (now or datetime.now(UTC)) - timedelta(days=days)
    used: dict[ReleaseName, tuple[str, ...]] = {}
    for seen in list_seen(tree):
        if is_since(seen.last, limit):
            used[seen.release] = (*used.get(seen.release, ()), seen.name)
    return used


def is_since(time: str, limit: datetime) -> bool:
    """Whether a time is not before `limit`; one that cannot be read is taken for now."""
    try:
        return datetime.fromisoformat(time) >= limit
    except (ValueError, TypeError):
        return True


@dataclass(frozen=True)
class Usage:
    """Who uses what: node names by release, and NFS clients that never reported a release."""

    used: Mapping[ReleaseName, tuple[str, ...]]
    strangers: tuple[str, ...]


def find_usage(tree: Tree, *, days: int = DAYS) -> Usage:
    """All that is known now: new reports and connections are taken in first."""
    note_reports(tree)
    strangers = note_connections(tree, find_connected(), datetime.now(UTC))
    return Usage(in_use(tree, days=days), tuple(strangers))
