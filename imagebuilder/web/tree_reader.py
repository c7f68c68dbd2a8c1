# SPDX-License-Identifier: Apache-2.0
"""What the page shows and only root may read whole: one way to read it, for the page itself or for
the program that reads for it (read.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from imagebuilder.errors import InputError, RootError
from imagebuilder.explain import DaemonLines, read_logs
from imagebuilder.fleet.addresses import last_seen
from imagebuilder.fleet.overview import find_warnings
from imagebuilder.nodes.evidence.seen import Seen, newest_first
from imagebuilder.nodes.evidence.usage import Usage, peek_reports
from imagebuilder.nodes.load import WatchedNodes
from imagebuilder.nodes.types import Node
from imagebuilder.publish.listing import ListedRelease, list_releases
from imagebuilder.rights import check_enterable
from imagebuilder.tree import Tree
from imagebuilder.web.node_facts import NodeStory, read_story

NO_USAGE = Usage({}, {}, (), ())
FRESH = 1.0  # seconds for which the lines of the daemons are good for every node


@dataclass(frozen=True)
class FleetNow:
    """What is newer than the records of nodes, by MAC, and warnings about nodes, by name."""

    seen: Mapping[str, Seen] = field(default_factory=dict)
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReleasesNow:
    """Every release without who runs it; `known` is whether boot tests were compared with roots."""

    releases: tuple[ListedRelease, ...]
    known: bool


class Reader(Protocol):
    """Whoever reads: each answer is of now.  `state` differs when more or less can be read."""

    file: WatchedNodes
    state: int

    def fleet(self) -> FleetNow: ...

    def releases(self) -> ReleasesNow: ...

    def story(self, name: str) -> NodeStory:
        """Raises InputError where nodes.yaml has no such node."""


class TreeReader:
    """Reads as this user; None or nothing stands for what the user may not read."""

    state = 0

    def __init__(self, tree: Tree) -> None:
        self.tree, self.file = tree, WatchedNodes(tree)
        self._lock = threading.Lock()
        self._logs: tuple[float, DaemonLines] | None = None

    def fleet(self) -> FleetNow:
        nodes, _ = self.file.load()
        try:
            newer = peek_reports(self.tree, nodes)
        except PermissionError:
            newer = {}
        seen = newest_of(self.tree, nodes.nodes, newer)
        return FleetNow(newer, find_warnings(self.tree, nodes.nodes, seen))

    def releases(self) -> ReleasesNow:
        found = tuple(list_releases(self.tree, usage=NO_USAGE))
        return ReleasesNow(found, may_enter(self.tree.repo))

    def story(self, name: str) -> NodeStory:
        nodes, _ = self.file.load()
        node = nodes.find(name)
        if node is None:
            raise InputError(f"no node named {name!r} in nodes.yaml")
        with self._lock:  # a story reads megabytes
            return read_story(self.tree, nodes, node, self.logs())

    def logs(self) -> DaemonLines:
        now = time.monotonic()
        if self._logs is None or now - self._logs[0] > FRESH:
            self._logs = time.monotonic(), read_logs(self.tree)
        return self._logs[1]


def newest_of(
    tree: Tree, nodes: Sequence[Node], newer: Mapping[str, Seen]
) -> dict[str, Seen | None]:
    """What each node said last, by name: what is on record, or newer than that."""

    def newest(node: Node) -> Seen | None:
        known = [newer[mac] for mac in node.macs if mac in newer]
        known += [old] if (old := last_seen(tree, node)) else []
        return next(iter(newest_first(known)), None)

    return {node.name: newest(node) for node in nodes}


def may_enter(folder: Path) -> bool:
    try:
        check_enterable(folder)
    except RootError:
        return False
    return True
