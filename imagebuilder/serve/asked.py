# SPDX-License-Identifier: Apache-2.0
"""Notes who asks our DHCP server and is none of nodes.yaml, from dnsmasq's lines.

`serve` hears them as they come; the installed units read the journal once a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from imagebuilder.decode import parse_object
from imagebuilder.errors import HostError, InputError
from imagebuilder.nodes.evidence.asked import MOST, Asked, read_asked, write_asked
from imagebuilder.nodes.evidence.seen import MAC
from imagebuilder.nodes.evidence.tickets import nodes_by_mac
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import run
from imagebuilder.serve.discover import OURSELVES
from imagebuilder.serve.remembered import Remembered
from imagebuilder.serve.stages import (
    ACK,
    ASKED,
    DHCP_LINE,
    MOST_TALKS,
    TOLD,
    Talk,
    is_host,
)
from imagebuilder.tree import Tree
from imagebuilder.untrusted import fit

PAUSE = 10.0  # seconds between two times that they are written
UNIT = "imagebuilder-dnsmasq.service"
MOST_LINES = 20_000  # of the journal that are read at a time


class AskedWatch:
    """Takes dnsmasq's lines; `is_node` tells whether a MAC address is one of nodes.yaml."""

    def __init__(self, tree: Tree, is_node: Callable[[str], bool]) -> None:
        self.tree = tree
        self.is_node = is_node
        self.talks = Remembered[Talk](MOST_TALKS)
        self.machines = Remembered[Asked](MOST, lambda _, asked: asked.architecture is not None)
        for asked in read_asked(tree):
            self.machines[asked.mac] = asked
        self.changed = False
        self.saved = 0.0

    def hear(self, line: str, at: datetime) -> None:
        """A line of dnsmasq; any other tells nothing."""
        if not (found := DHCP_LINE.match(line)):
            return
        talk = self.talks.setdefault(found[1], Talk())
        if told := TOLD.match(found[2]):
            setattr(talk, "vendor" if told[1] == "vendor class" else "user", told[2])
        elif ack := ACK.match(found[2]):
            self.note(ack[2], ack[1], talk, at)
        elif asked := ASKED.match(found[2]):
            self.note(asked[2], asked[1] or "", talk, at)

    def note(self, mac: str, address: str, talk: Talk, at: datetime) -> None:
        """A machine asked.  What its firmware said counts more than what its system says later."""
        if not MAC.fullmatch(mac) or self.is_node(mac) or talk.vendor == OURSELVES:
            return
        now = at.isoformat(timespec="seconds")
        address = address if is_host(address) else ""
        new = Asked(mac, fit(talk.vendor), talk.architecture, address, now, now)
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
        """Write them down, at most every few seconds; without those that became nodes."""
        if self.changed and now - self.saved >= PAUSE:
            write_asked(self.tree, [a for a in self.machines.values() if not self.is_node(a.mac)])
            self.changed, self.saved = False, now


def note_journal(tree: Tree, nodes: Nodes) -> None:
    """Note who asked since the last time, by the journal of the installed dnsmasq."""
    by_mac = nodes_by_mac(nodes)
    watch = AskedWatch(tree, by_mac.__contains__)
    for line, at in read_journal(tree):
        watch.hear(line, at)
    watch.save(PAUSE)


def read_journal(tree: Tree) -> Iterator[tuple[str, datetime]]:
    """Lines of dnsmasq with their times, behind those that were read before."""
    words = ["journalctl", f"--unit={UNIT}", f"--cursor-file={tree.serve / 'asked.cursor'}"]
    more = [f"--lines={MOST_LINES}", "--output=json", "--output-fields=MESSAGE", "--no-pager"]
    try:
        said = run([*words, *more], check=False)
    except HostError:  # there is no journal
        return
    for text in said.stdout.splitlines():
        with contextlib.suppress(InputError, KeyError, ValueError, OverflowError):
            entry = parse_object(text, UNIT)
            line, at = entry["MESSAGE"], int(str(entry["__REALTIME_TIMESTAMP"]))
            if isinstance(line, str):  # else it is no text
                yield line, datetime.fromtimestamp(at / 1e6, UTC)
