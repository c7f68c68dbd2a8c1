# SPDX-License-Identifier: Apache-2.0
"""Automatic fallback: let a node that does not become ready boot its last good release.

The boot server sees which boots ended with an ssh server that answers (nodes/evidence/boots.py),
and rewrites the scripts of nodes as soon as one of them should boot something else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from imagebuilder.fleet.addresses import find_addresses
from imagebuilder.fleet.probe import probe_nodes
from imagebuilder.nodes.evidence.boots import confirm_boots, read_boots
from imagebuilder.nodes.types import Nodes
from imagebuilder.tree import Tree


def awaited_nodes(tree: Tree, nodes: Nodes) -> dict[str, str]:
    """The addresses of nodes that began a boot and were not greeted by ssh since, by name."""
    boots = read_boots(tree)
    waiting = [n for n in nodes.nodes if n.name in boots and boots[n.name].awaits_ssh]
    return find_addresses(tree, waiting)


def confirm_ready(tree: Tree, nodes: Nodes) -> None:
    """Try the ssh servers of all these nodes, which takes some seconds."""
    if addresses := awaited_nodes(tree, nodes):
        confirm_boots(tree, probe_nodes(addresses))


def confirm_open(tree: Tree, awaited: Mapping[str, str], greeted: Collection[str]) -> None:
    """Record the nodes whose addresses are in `greeted` as ready."""
    if ready := [name for name, address in awaited.items() if address in greeted]:
        confirm_boots(tree, ready)
