# SPDX-License-Identifier: Apache-2.0
"""The states of nodes, observed now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from imagebuilder.fleet.addresses import addresses_of, last_records
from imagebuilder.fleet.probe import probe_nodes
from imagebuilder.fleet.state import NodeState, Observation, SshEvidence, derive_state
from imagebuilder.nodes.evidence.boots import FellBack, find_fallbacks, read_boots
from imagebuilder.nodes.evidence.seen import Seen
from imagebuilder.nodes.references import find_release
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree


def observe(
    tree: Tree, nodes: Sequence[Node], seen: Mapping[str, Seen | None] | None = None
) -> list[NodeState]:
    """How each node is now, in the order given: the ssh servers of all are asked.

    `seen` are their last records, where they were read already.
    """
    seen = last_records(tree, nodes) if seen is None else seen
    now = datetime.now(UTC)
    return find_states(tree, nodes, seen, probe_nodes(addresses_of(nodes, seen)), now)


def find_states(
    tree: Tree,
    nodes: Sequence[Node],
    seen: Mapping[str, Seen | None],
    answers: Mapping[str, Observation],
    probed: datetime | None,
) -> list[NodeState]:
    """How each node is by what is on record, and by `answers` of ssh servers, which were asked at
    that time (None: never).
    """
    now = datetime.now(UTC)
    releases: dict[tuple[str, str, str], str] = {}
    for node in nodes:
        key = (node.profile, node.channel, node.version)
        if key not in releases:
            version = find_release(tree, node)
            releases[key] = f"{node.profile}@{version}" if version else ""
    boots = read_boots(tree)
    states = [
        derive_state(
            node.name,
            seen[node.name],
            SshEvidence(
                answers.get(node.name),
                probed,
                boots[node.name].ready_since if node.name in boots else None,
            ),
            releases[node.profile, node.channel, node.version],
            now,
        )
        for node in nodes
    ]
    fallbacks = find_fallbacks(tree, nodes)
    return [
        with_fallback(state, node, fallbacks[node.name]) if node.name in fallbacks else state
        for state, node in zip(states, nodes, strict=True)
    ]


def with_fallback(state: NodeState, node: Node, fallback: FellBack) -> NodeState:
    """The state of a node that the boot server gives another release than nodes.yaml wants."""
    words = f"{fallback}; {state.words}"
    following = f"{node.profile}@{fallback.version}"
    return replace(state, words=words, next=following, fell_back=True)
