# SPDX-License-Identifier: Apache-2.0
"""Where nodes are: the address of nodes.yaml, or what they last reported from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imagebuilder.nodes.evidence.seen import Seen, find_seen
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree


def find_addresses(tree: Tree, nodes: Sequence[Node]) -> dict[str, str]:
    """The address of each node that has a known one, by its name."""
    return addresses_of(nodes, last_records(tree, nodes))


def addresses_of(nodes: Sequence[Node], seen: Mapping[str, Seen | None]) -> dict[str, str]:
    """The same, from records that were read already."""
    found = {}
    for node in nodes:
        last = seen.get(node.name)
        if address := node.address or (last.address if last else ""):
            found[node.name] = address
    return found


def last_records(tree: Tree, nodes: Sequence[Node]) -> dict[str, Seen | None]:
    return {node.name: last_seen(tree, node) for node in nodes}


def last_seen(tree: Tree, node: Node) -> Seen | None:
    """The newest record of the node's NICs; a damaged one says nothing about it."""
    return next(iter(find_seen(tree, node.macs)), None)
