# SPDX-License-Identifier: Apache-2.0
"""Nodes for whoever looks at them again and again: nodes.yaml is parsed only when it changed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.tree import Tree

Stamp = tuple[tuple[str, int, int, int], ...]
FAULTY_S = 15.0  # how long faults are believed: that of a disk or of rights goes without a change


class WatchedNodes:
    """The nodes of a tree; the file is read again when it changed, and a while after a fault."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._nodes: tuple[Stamp | None, Nodes, tuple[Fault, ...]] = (None, Nodes(), ())
        self._read = 0.0

    def load(self) -> tuple[Nodes, tuple[Fault, ...]]:
        """The nodes; while nodes.yaml has faults, those of before and the faults."""
        stamp = stamp_of([self.tree.nodes_file])
        before, nodes, faults = self._nodes
        if stamp != before or (faults and time.monotonic() - self._read > FAULTY_S):
            try:
                nodes, faults = load_nodes(self.tree), ()
            except InputError as error:
                faults = error.faults
            self._nodes, self._read = (stamp, nodes, faults), time.monotonic()
        return nodes, faults


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """Inode, time and size of what there is."""
    found = []
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        found.append((path.name, state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)
