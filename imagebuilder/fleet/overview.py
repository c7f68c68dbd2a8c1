# SPDX-License-Identifier: Apache-2.0
"""How nodes are: the state that follows from evidence, and what those that answer say themselves.

Asking one node over ssh takes about 70 ms of a processor: 800 take a minute where there is one.
So nodes are asked without being told to only where there are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.fleet.health import Health, Verdict, read_health
from imagebuilder.fleet.state import NodeState
from imagebuilder.fleet.status import observe
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree

FEW = 64


@dataclass(frozen=True)
class NodeView:
    """A node's state; `health` is None where it was not asked."""

    state: NodeState
    health: Health | None

    @property
    def good(self) -> bool:
        """Ready, and healthy as far as it was asked."""
        return self.state.ready and (self.health is None or self.health.verdict is Verdict.OK)

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {**self.state.as_json(), "health": self.health.as_json() if self.health else None}

    def row(self) -> tuple[str, ...]:
        """As a line of a table."""
        state, health = self.state, self.health
        same = state.next and state.next == state.release
        following = "the same" if same else state.next or "nothing"
        words = state.words
        if health and health.verdict is not Verdict.OK:
            words = health.words
        asked = health.verdict.value if health else "-"
        return state.node, state.condition.value, asked, state.release or "-", following, words


def overview(tree: Tree, nodes: Sequence[Node], *, health: bool) -> list[NodeView]:
    """How each node is now, in the order given; with `health`, those that answer are asked."""
    states = observe(tree, nodes)
    ready = {state.node for state in states if state.ready}
    asked = [node for node in nodes if node.name in ready] if health else []
    said = read_health(tree, asked) if asked else {}
    return [NodeView(state, said.get(state.node)) for state in states]
