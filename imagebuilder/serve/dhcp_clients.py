# SPDX-License-Identifier: Apache-2.0
"""Record DHCP clients that are not in nodes.yaml, from the log of dnsmasq.

`serve` reads its lines directly; the installed units read the journal once a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.decode import parse_object
from imagebuilder.errors import HostError, InputError
from imagebuilder.nodes.evidence.dhcp_clients import (
    MOST,
    DhcpClient,
    read_dhcp_clients,
    write_dhcp_clients,
)
from imagebuilder.nodes.evidence.tickets import nodes_by_mac
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import Word, run
from imagebuilder.serve.discover import OURSELVES
from imagebuilder.serve.remembered import Remembered
from imagebuilder.serve.stages import (
    ACK,
    DHCP_LINE,
    DHCP_REQUEST,
    MOST_TALKS,
    Talk,
    is_host,
)
from imagebuilder.tree import MAC, Tree
from imagebuilder.untrusted import fit

PAUSE = 10.0  # seconds between two writes
UNIT = "imagebuilder-dnsmasq.service"
MOST_LINES = 20_000  # of the journal per read


class DhcpClientWatch:
    """Reads dnsmasq's lines; `is_node` says whether a MAC address is in nodes.yaml."""

    def __init__(self, tree: Tree, is_node: Callable[[str], bool]) -> None:
        self.tree = tree
        self.is_node = is_node
        self.talks = Remembered[Talk](MOST_TALKS)
        self.machines = Remembered[DhcpClient](
            MOST, lambda _, client: client.architecture is not None
        )
        for client in read_dhcp_clients(tree):
            self.machines[client.mac] = client
        self.changed = False
        self.saved = 0.0

    def hear(self, line: str, at: datetime) -> None:
        """Read a line of dnsmasq; ignores all others."""
        if not (found := DHCP_LINE.match(line)):
            return
        talk = self.talks.setdefault(found[1], Talk())
        if talk.hear(found[2]):
            return
        if ack := ACK.match(found[2]):
            self.note(ack[2], ack[1], talk, at)
        elif request := DHCP_REQUEST.match(found[2]):
            self.note(request[2], request[1] or "", talk, at)

    def note(self, mac: str, address: str, talk: Talk, at: datetime) -> None:
        """Record a request.  What the firmware says counts more than what its system says later."""
        if not MAC.fullmatch(mac) or self.is_node(mac) or talk.vendor == OURSELVES:
            return
        now = at.isoformat(timespec="seconds")
        address = address if is_host(address) else ""
        new = DhcpClient(mac, fit(talk.vendor), talk.architecture, address, now, now)
        if before := self.machines.pop(mac, None):
            known = before if talk.architecture is None and before.architecture is not None else new
            new = replace(
                new,
                vendor=known.vendor or before.vendor,
                architecture=known.architecture,
                address=address or before.address,
                first=before.first,
            )
        self.machines[mac] = new
        self.changed = True

    def save(self, now: float) -> None:
        """Save the clients, at most every few seconds; drops those that became nodes."""
        if self.changed and now - self.saved >= PAUSE:
            write_dhcp_clients(
                self.tree, [a for a in self.machines.values() if not self.is_node(a.mac)]
            )
            self.changed, self.saved = False, now


def note_journal(tree: Tree, nodes: Nodes) -> None:
    """Record new clients from the journal of the installed dnsmasq."""
    by_mac = nodes_by_mac(nodes)
    watch = DhcpClientWatch(tree, by_mac.__contains__)
    for line, at in read_journal(tree):
        watch.hear(line, at)
    watch.save(PAUSE)


def read_journal(tree: Tree) -> Iterator[tuple[str, datetime]]:
    """New lines of dnsmasq with their times.

    After a flood there may be hours of them, so the newest of more than MOST_LINES follow the
    oldest.  A damaged record of what was read is dropped.
    """
    cursor = tree.serve / "asked.cursor"
    for _ in range(2):
        try:
            said = run(journal_words(cursor), check=False)
        except HostError:  # the system has no journal
            return
        entries = said.stdout.splitlines()
        yield from parse_journal(entries)
        if not said.status and len(entries) < MOST_LINES:
            return
        cursor.unlink(missing_ok=True)  # without it, journalctl begins with the newest lines


def journal_words(cursor: Path) -> list[Word]:
    """The command that prints the lines after a cursor, or the last ones without, and moves it."""
    what = [f"--unit={UNIT}", f"--cursor-file={cursor}", f"--lines={MOST_LINES}"]
    return ["journalctl", *what, "--output=json", "--output-fields=MESSAGE", "--no-pager"]


def parse_journal(entries: Iterable[str]) -> Iterator[tuple[str, datetime]]:
    """The lines in what journalctl printed, with their times."""
    for text in entries:
        with contextlib.suppress(InputError, KeyError, ValueError, OverflowError):
            entry = parse_object(text, UNIT)
            line, at = entry["MESSAGE"], int(str(entry["__REALTIME_TIMESTAMP"]))
            if isinstance(line, str):  # journalctl prints binary data as a list
                yield line, datetime.fromtimestamp(at / 1e6, UTC)
