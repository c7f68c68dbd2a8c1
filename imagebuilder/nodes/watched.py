# SPDX-License-Identifier: Apache-2.0
"""Nodes for whoever looks at them again and again: nodes.yaml is parsed only when it changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.tree import Tree

Stamp = tuple[tuple[str, int, int, int], ...]


class WatchedNodes:
    """The nodes of a tree; the file is read again when it changed."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._nodes: tuple[Stamp | None, Nodes, tuple[Fault, ...]] = (None, Nodes(), ())

    def load(self) -> tuple[Nodes, tuple[Fault, ...]]:
        """The nodes; while nodes.yaml has faults, those of before and the faults."""
        stamp = stamp_of([self.tree.nodes_file])
        before, nodes, faults = self._nodes
        if stamp != before:
            try:
                nodes, faults = load_nodes(self.tree), ()
            except InputError as error:
                faults = error.faults
            self._nodes = stamp, nodes, faults
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
