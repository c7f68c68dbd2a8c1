# SPDX-License-Identifier: Apache-2.0
"""Pins in nodes.yaml: what a node boots is there, and nowhere else.

Only a node that follows stable, or has a pin of the roll-out, is changed; what a person wrote
meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from imagebuilder.fleet.rollout.types import Rollout
from imagebuilder.nodes.edit import NodeEdit, set_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.tree import Tree


def pin_nodes(tree: Tree, rollout: Rollout, wanted: Mapping[str, str]) -> list[str]:
    """Have nodes pinned to the `wanted` versions, empty for none; the names of those that were not.

    Raises InputError when nodes.yaml is wrong.
    """
    if not wanted:
        return []
    edited = set_nodes(tree, lambda nodes: find_edits(rollout, wanted, nodes))
    return [each.after.name for each in edited if each.after]


def find_edits(rollout: Rollout, wanted: Mapping[str, str], nodes: Nodes) -> dict[str, NodeEdit]:
    channels = {node.name: node.channel for node in rollout.nodes}
    edits = {}
    for node in nodes.nodes:
        version = wanted.get(node.name)
        if version is None or version == node.version or node.profile != rollout.profile:
            continue
        if node.version not in ("", rollout.before, rollout.after):
            continue
        if version:
            edits[node.name] = NodeEdit({"version": version})
        else:
            channel = {"channel": channels[node.name]} if channels[node.name] else {}
            edits[node.name] = NodeEdit(channel, unset=("version",))
    return edits
