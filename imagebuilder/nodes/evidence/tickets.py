# SPDX-License-Identifier: Apache-2.0
"""Tickets: how a report proves which node sends it.

The web server puts a new random number into every copy of a node's boot script that it sends
(pxe/nginx.conf.j2), and logs the address.  The script passes the number to the kernel, and the
initrd reports with it.  It identifies the node only if that address belongs to the node, and only
until the node fetches its script again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import place_file, read_text
from imagebuilder.nodes.evidence.seen import DamagedRecordError, parse_record, read_bounded
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.process import run
from imagebuilder.tree import MAC, ReleaseName, Tree

MOST_BYTES = 4 * 1024**2
PAUSES = (0.0, 0.005, 0.02, 0.05)  # seconds before each try to read a whole file of leases


@dataclass(frozen=True)
class Ticket:
    """The last number for the owner of a NIC, and its time (ISO 8601 in UTC).

    `release` is that of the first report with it, PROFILE@VERSION: one boot has one release.
    """

    secret: str
    mac: str
    time: str
    release: str = ""


class Tickets:
    """The valid tickets: the last one of each node, and until that is reported with, the one before
    it that was.  Any user of a node may fetch its script, and does not end the boot that runs.
    """

    def __init__(self, tree: Tree, nodes: Mapping[str, Node]) -> None:
        self.tree = tree
        self.nodes = nodes  # by MAC
        self.known = {ticket.secret: ticket for ticket in read_tickets(tree.tickets)}
        self.changed = False

    def hand_out(self, secret: str, mac: str, address: str, time: str) -> bool:
        """Record a ticket that the web server sent with a node's script to `address`.

        Returns whether that is the node's address and the ticket is new.
        """
        node = self.nodes.get(mac)
        if secret in self.known or node is None or not self.belongs(address, node):
            return False
        older = self.of(mac)
        now = datetime.now(UTC).isoformat()
        if any(time < ticket.time <= now for ticket in older):
            return False  # this part of the log was read before
        used = next((ticket for ticket in older if ticket.release), None)
        for ticket in older:
            if ticket is not used:
                del self.known[ticket.secret]
        self.known[secret] = Ticket(secret, mac, time)
        self.changed = True
        return True

    def is_unused(self, secret: str) -> bool:
        """Whether nothing was reported with a ticket yet: the next report is a boot's first."""
        ticket = self.known.get(secret)
        return ticket is not None and not ticket.release

    def proves(self, secret: str, mac: str, release: ReleaseName) -> bool:
        """Whether a ticket proves that the owner of `mac` booted `release`."""
        ticket = self.known.get(secret)
        if ticket is None or ticket.release not in ("", str(release)):
            return False
        newest, *older = self.of(ticket.mac)
        if ticket is not newest:
            return False
        node = self.nodes.get(ticket.mac)
        if mac != ticket.mac and (node is None or mac not in node.macs):
            return False
        if not ticket.release:
            self.known[secret] = Ticket(secret, ticket.mac, ticket.time, str(release))
            for each in older:
                del self.known[each.secret]
            self.changed = True
        return True

    def of(self, mac: str) -> list[Ticket]:
        """The tickets of the owner of a NIC, for any of its NICs, the newest first."""
        node = self.nodes.get(mac)
        macs = node.macs if node else (mac,)
        # In the order of the log: two may be of the same second.
        return [ticket for ticket in self.known.values() if ticket.mac in macs][::-1]

    def belongs(self, address: str, node: Node) -> bool:
        """Whether an address belongs to a node: its fixed one, or the current one of a NIC."""
        return (
            address == node.address
            or self.leases.get(address) in node.macs
            or self.neighbours.get(address) in node.macs
        )

    @cached_property
    def leases(self) -> Mapping[str, str]:
        """The MAC of each address that our DHCP server assigned."""
        return read_leases(self.tree.serve / "leases")

    @cached_property
    def neighbours(self) -> Mapping[str, str]:
        """The MAC of each address on the network, for nodes whose router assigns addresses."""
        return find_neighbours()

    def save(self) -> None:
        """Save the tickets of existing nodes, readable only for root."""
        if self.changed:
            known = self.known.values()
            kept = [
                asdict(ticket) for ticket in known if not self.nodes or ticket.mac in self.nodes
            ]
            place_file(self.tree.tickets, json.dumps(kept).encode() + b"\n", 0o600)
            self.changed = False


def read_tickets(path: Path) -> list[Ticket]:
    """The tickets in a file; none in a damaged one: its nodes are unverified until they boot."""
    try:
        value = parse_record(read_bounded(path, MOST_BYTES) or b"[]")
    except DamagedRecordError:
        return []
    found: list[Ticket] = []
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict) and {*each} == {"secret", "mac", "time", "release"}:
            secret, mac, time, release = (
                str(each[key]) for key in ("secret", "mac", "time", "release")
            )
            found.append(Ticket(secret, mac, time, release))
    return found


def read_leases(path: Path) -> Mapping[str, str]:
    """dnsmasq's valid leases: MACs by address.  A line has end, MAC, address, ...

    dnsmasq empties the file and writes it again, so an incomplete one is read again.
    """
    text = ""
    for pause in PAUSES:
        time.sleep(pause)
        try:
            text = read_text(path)
        except OSError:
            return {}
        if text.endswith("\n"):
            break
    lines = text[: text.rfind("\n") + 1].splitlines()
    now = datetime.now(UTC).timestamp()
    found: dict[str, str] = {}
    for words in (line.split() for line in lines):
        if len(words) >= 3 and words[0].isdecimal() and MAC.fullmatch(words[1]):
            end = int(words[0][:18])
            if end == 0 or end > now:
                found[words[2]] = words[1]
    return found


def find_neighbours() -> Mapping[str, str]:
    """The kernel's neighbour table: MACs by address; empty if ip(8) fails."""
    try:
        said = run(["ip", "-4", "neighbour", "show"], check=False).stdout
    except HostError:
        return {}
    found: dict[str, str] = {}
    for words in (line.split() for line in said.splitlines()):
        if "lladdr" in words[:-1]:
            found[words[0]] = words[words.index("lladdr") + 1]
    return found


def nodes_by_mac(nodes: Nodes) -> dict[str, Node]:
    return {mac: node for node in nodes.nodes for mac in node.macs}
