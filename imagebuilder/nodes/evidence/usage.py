# SPDX-License-Identifier: Apache-2.0
"""Which node runs which release, from the nodes' reports and from NFS connections.

The last release of each NIC of nodes.yaml is in seen/MAC.json.  Only a report with the ticket of
that boot changes it (tickets.py); every other report is unverified (strangers.py).  A release is in
use until its node proves that it booted another one, or there was no sign of the node for thirty
days: no report of a boot or of its health, and no connection from its address to port 2049.  While
a record is damaged, every release counts as in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

from imagebuilder.errors import HostError, InputError
from imagebuilder.locks import file_lock
from imagebuilder.nodes.config import read_served
from imagebuilder.nodes.evidence.boots import NodeBoots, read_boots, write_boots
from imagebuilder.nodes.evidence.health_report import ToldHealth, note_health, parse_health_report
from imagebuilder.nodes.evidence.records import Doubt, read_evidence
from imagebuilder.nodes.evidence.report_log import (
    LINE,
    PIECE,
    SCRIPT,
    WITH_HEALTH,
    WITH_TICKET,
    old_log,
    parse_seen_report,
    parse_time,
    read_mark,
    read_piece,
    size_of,
    write_mark,
)
from imagebuilder.nodes.evidence.seen import DamagedRecordError, Seen, merge, read_seen, write_seen
from imagebuilder.nodes.evidence.strangers import (
    FOLDED,
    add_strangers,
    find_excess,
    fold_in,
    write_strangers,
)
from imagebuilder.nodes.evidence.tickets import Tickets, nodes_by_mac
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.phrases import list_first
from imagebuilder.process import run
from imagebuilder.tree import ReleaseName, Tree

DAYS = 30
NFS_PORT = 2049
FEW_REPORTS = 16  # unverified ones per address that are read in a piece of the log
PEEKED = 4  # unread pieces of the log that a peek reads
FEW_NAMES = 8  # per line
UNREAD = Doubt(
    "nodes.yaml has faults, so new reports are not read yet", "correct it: imagebuilder nodes list"
)
FRESH = timedelta(hours=1)  # a newer sign is not updated


@dataclass
class ReportBatch:
    """The content of a piece of the log: records of nodes by MAC, and unverified ones.

    `healths` are the reports of each node by its name.  Nothing is written before save().
    """

    tree: Tree
    tickets: Tickets
    verified: dict[str, Seen] = field(default_factory=dict)
    strangers: list[Seen] = field(default_factory=list)
    healths: dict[str, list[ToldHealth]] = field(default_factory=dict)
    many: Counter[bytes] = field(default_factory=Counter)

    def take(self, line: bytes) -> None:
        """Read a line of the log; skips what the web server did not write."""
        if (match := LINE.fullmatch(line)) is None:
            return
        uri, address, handed = match["uri"], match["address"], match["handed"]
        if handed is not None:
            if script := SCRIPT.fullmatch(uri):
                mac = script[1].decode().replace("-", ":")
                time = parse_time(match["time"])
                if self.tickets.hand_out(handed.decode(), mac, address.decode(), time):
                    self.note_fetch(mac, time)
            return
        if uri.startswith(WITH_HEALTH):
            if self.many[address] < FEW_REPORTS and not self.take_health(uri, match["time"]):
                self.many[address] += 1
            return
        # A cheap test, because an address may send any number of unverified reports.
        ticket = WITH_TICKET.match(uri)
        if ticket is None or ticket[1].decode() not in self.tickets.known:
            self.many[address] += 1
            if self.many[address] > FEW_REPORTS:
                return
        time = parse_time(match["time"])
        report = parse_seen_report(uri.decode(errors="replace"), address.decode(), time)
        if report is None or not time:
            return
        secret, seen = report
        begins = self.tickets.is_unused(secret)
        if self.tickets.proves(secret, seen.mac, seen.release):
            if begins:
                self.forget_health(seen.mac)
            self.take_verified(seen)
        else:
            self.strangers.append(seen)

    def take_verified(self, seen: Seen) -> None:
        """Record a verified report of a node."""
        if node := self.tickets.nodes.get(seen.mac):
            seen = replace(seen, node=node.name, root=seen.root or node.root)
            if record := self.boots.get(node.name):
                self.boots[node.name] = record.told(str(seen.release))
        self.verified[seen.mac] = merge(self.verified.get(seen.mac) or self.before(seen.mac), seen)

    def take_health(self, uri: bytes, time: bytes) -> bool:
        """Record a health report; returns whether it is verified."""
        signed = parse_health_report(uri, parse_time(time))
        if signed is None or not signed.proved_by(self.tickets):
            return False
        seen = self.verified.get(signed.mac) or self.before(signed.mac)
        if seen and seen.release == signed.release:
            last = seen.health
            if last is None or signed.report.uptime > last.uptime:
                self.verified[signed.mac] = replace(seen, health=signed.report)
            if node := self.tickets.nodes.get(signed.mac):
                self.healths.setdefault(node.name, []).append((seen.release, signed.report))
        return True

    def forget_health(self, mac: str) -> None:
        """Drop the health of a node that began another boot."""
        for each in self.tickets.nodes[mac].macs:
            seen = self.verified.get(each) or self.before(each)
            if seen and seen.health:
                self.verified[each] = replace(seen, health=None)

    def note_fetch(self, mac: str, time: str) -> None:
        """Record that a node fetched its script and tries its release."""
        node, served = self.tickets.nodes[mac], read_served(self.tree, mac)
        if served is None:
            return
        version = served.version or find_version(self.tree, served.profile, served.channel)
        record = self.boots.get(node.name) or NodeBoots(node.name)
        self.boots[node.name] = record.fetched(f"{served.profile}@{version}", time)

    @cached_property
    def boots(self) -> dict[str, NodeBoots]:
        """The nodes' boots, updated as lines are read."""
        return read_boots(self.tree)

    def before(self, mac: str) -> Seen | None:
        """The earlier record of a NIC's owner; None for a damaged one, which is replaced."""
        try:
            return read_seen(self.tree.seen(mac))
        except DamagedRecordError:
            return None

    def save(self) -> None:
        """Save everything."""
        for name, reports in self.healths.items():
            note_health(self.tree, name, reports)
        for seen in self.verified.values():
            write_seen(self.tree, seen)
        if self.strangers:
            add_strangers(self.tree, self.strangers)
        if "boots" in self.__dict__:
            names = {node.name for node in self.tickets.nodes.values()}
            kept = {name: each for name, each in self.boots.items() if name in names}
            write_boots(self.tree, kept)
        self.tickets.save()


def note_reports(
    tree: Tree, nodes: Nodes | None = None, *, most: int = 0, fold: int = FOLDED
) -> list[Seen]:
    """Read new reports; returns the changed records of nodes.

    `most` is the number of bytes of the log to read (0: all), `fold` the number of records of
    machines outside nodes.yaml that are moved to the unverified ones.  `nodes` defaults to those of
    nodes.yaml; while that has faults, nothing is read, for nobody's ticket would be known.
    """
    log, place = tree.reports_log, tree.reports_mark
    found: dict[str, Seen] = {}
    with file_lock(tree.lock("reports")):
        known = nodes if nodes is not None else find_nodes(tree)
        if known is None:
            return []
        by_mac = nodes_by_mac(known)
        fold_in(tree, find_excess(tree, by_mac, fold))
        # The last piece of each of the two logs may be short.
        left = most or size_of(log) + size_of(old_log(log)) + 2 * PIECE
        mark = read_mark(place)
        while left > 0:
            lines, behind = read_piece(log, mark)
            if behind == mark:
                break
            turn = ReportBatch(tree, Tickets(tree, by_mac))
            for line in lines:
                turn.take(line)
            turn.save()
            # Last: a killed process reads the same lines again, with the same result.
            write_mark(place, behind)
            left -= PIECE
            mark = behind
            found |= turn.verified
    return list(found.values())


def peek_reports(tree: Tree, nodes: Nodes) -> dict[str, Seen]:
    """The records that the reports since the last note_reports() would change, by NIC.

    Writes nothing, and reads only the beginning of a flood.  Raises PermissionError.
    """
    batch = ReportBatch(tree, Tickets(tree, nodes_by_mac(nodes)))
    mark = read_mark(tree.reports_mark)
    for _ in range(PEEKED):
        lines, behind = read_piece(tree.reports_log, mark)
        if behind == mark:
            break
        for line in lines:
            batch.take(line)
        mark = behind
    return batch.verified


def find_nodes(tree: Tree) -> Nodes | None:
    """The nodes; None if nodes.yaml has faults, which other commands report."""
    try:
        return load_nodes(tree)
    except InputError:
        return None


def known_nodes(tree: Tree) -> Nodes:
    """The nodes; no nodes if nodes.yaml has faults."""
    return find_nodes(tree) or Nodes()


def note_connections(
    tree: Tree, nodes: Nodes | None, connected: Collection[str], now: datetime
) -> list[str]:
    """Refresh the records of connected machines; returns addresses without any report.

    An unverified report counts for an address only if neither the address nor the NIC belongs to a
    node.
    """
    if not connected:
        return []
    with file_lock(tree.lock("reports")):
        evidence = read_evidence(tree, nodes)
        for seen in evidence.nodes:
            if seen.address in connected and not is_since(seen.last, now - FRESH):
                write_seen(tree, replace(seen, last=now.isoformat()))
        strangers = refreshed(evidence.strangers, connected, now)
        if strangers != evidence.strangers:
            write_strangers(tree, strangers)
    by_mac = nodes_by_mac(nodes or Nodes())
    fixed = {node.address for node in by_mac.values()}
    known = {seen.address for seen in evidence.nodes}
    known |= {
        s.address for s in evidence.strangers if s.mac not in by_mac and s.address not in fixed
    }
    return sorted({*connected} - known)


def refreshed(
    records: Iterable[Seen], connected: Collection[str], now: datetime
) -> tuple[Seen, ...]:
    """The unverified records, with `now` in the newest one of each NIC at an address."""
    newest: dict[tuple[str, str], Seen] = {}
    for seen in sorted(records, key=lambda seen: seen.last):
        newest[seen.address, seen.mac] = seen

    def refresh(seen: Seen) -> Seen:
        old = seen.address in connected and not is_since(seen.last, now - FRESH)
        is_newest = newest[seen.address, seen.mac] is seen
        return replace(seen, last=now.isoformat()) if old and is_newest else seen

    return tuple(map(refresh, records))


def find_connected() -> list[str]:
    """The addresses connected to this host's NFS server; none if ss(8) fails."""
    try:
        said = run(["ss", "-Htn", "state", "established", f"( sport = :{NFS_PORT} )"], check=False)
    except HostError:
        return []
    return parse_connections(said.stdout)


def parse_connections(text: str) -> list[str]:
    """The peers in the output of ss (queues, our address, theirs), with mapped IPv4 addresses."""
    peers = (line.split()[3] for line in text.splitlines() if len(line.split()) >= 4)
    plain = (peer.rpartition(":")[0].strip("[]").partition("%")[0] for peer in peers)
    return sorted({address.removeprefix("::ffff:") for address in plain})


def in_use(records: Iterable[Seen], limit: datetime) -> dict[ReleaseName, list[Seen]]:
    """The records by release, without those that are older than `limit`."""
    used: dict[ReleaseName, list[Seen]] = {}
    for seen in records:
        if is_since(seen.last_sign, limit):
            used.setdefault(seen.release, []).append(seen)
    return used


def is_since(time: str, limit: datetime) -> bool:
    """Whether a time is not before `limit`; an invalid one counts as now."""
    try:
        return datetime.fromisoformat(time) >= limit
    except (ValueError, TypeError):
        return True


@dataclass(frozen=True)
class Usage:
    """The users of releases.

    `used` are names of nodes by release, `claimed` the unverified ones: MACs, or names of nodes.
    `clients` are NFS clients that never reported a release, `doubts` why every release may be in
    use.
    """

    used: Mapping[ReleaseName, tuple[str, ...]]
    claimed: Mapping[ReleaseName, tuple[str, ...]]
    clients: tuple[str, ...]
    doubts: tuple[Doubt, ...]

    def users(self, release: ReleaseName) -> tuple[str, ...]:
        """All machines that run a release, or claim to."""
        return (*self.used.get(release, ()), *self.claimed.get(release, ()))


def find_usage(
    tree: Tree, *, days: int = DAYS, whole: bool = False, now: datetime | None = None
) -> Usage:
    """The current usage: reads new reports and connections first.

    `whole` also reads every record of an older version, which takes time.
    """
    now = now or datetime.now(UTC)
    nodes = find_nodes(tree)
    note_reports(tree, nodes)
    while whole and nodes and find_excess(tree, nodes_by_mac(nodes), 1):
        note_reports(tree, nodes)  # a few at a time: a running server reads reports in between
    clients = note_connections(tree, nodes, find_connected(), now)
    usage = read_usage(tree, nodes, days=days, now=now)
    doubts = usage.doubts if nodes is not None else (*usage.doubts, UNREAD)
    return replace(usage, clients=tuple(clients), doubts=doubts)


def read_usage(
    tree: Tree, nodes: Nodes | None, *, days: int = DAYS, now: datetime | None = None
) -> Usage:
    """The recorded usage, without NFS clients; writes nothing."""
    now = now or datetime.now(UTC)
    evidence = read_evidence(tree, nodes)
    limit, by_mac = now - timedelta(days=days), nodes_by_mac(nodes or Nodes())
    used = {
        release: tuple(dict.fromkeys(name_of(seen, by_mac) for seen in found))
        for release, found in in_use(evidence.nodes, limit).items()
    }
    claimed: dict[ReleaseName, tuple[str, ...]] = {}
    for release, found in in_use(evidence.strangers, limit).items():
        told = dict.fromkeys(name_of(seen, by_mac) for seen in found)
        if names := tuple(name for name in told if name not in used.get(release, ())):
            claimed[release] = names
    return Usage(used, claimed, (), evidence.doubts)


def name_of(seen: Seen, by_mac: Mapping[str, Node]) -> str:
    """The name of the owner of a NIC for people."""
    node = by_mac.get(seen.mac)
    return node.name if node else seen.name


def list_names(names: Sequence[str]) -> str:
    """Names in one line: the first few, and the number of others."""
    return list_first(names, FEW_NAMES)
