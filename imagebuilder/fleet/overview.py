# SPDX-License-Identifier: Apache-2.0
"""How nodes are now: the state that follows from evidence, what they say of their own health, and
of whom the console is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from imagebuilder.digest import Json
from imagebuilder.errors import RootError
from imagebuilder.fleet.addresses import addresses_of, last_records
from imagebuilder.fleet.health import Health, Verdict, read_health, reported_health
from imagebuilder.fleet.probe import probe_nodes
from imagebuilder.fleet.state import (
    LAST_STAGE,
    Condition,
    NodeState,
    Observation,
    SshEvidence,
    derive_state,
)
from imagebuilder.nodes.config import read_config
from imagebuilder.nodes.evidence.boots import FellBack, find_fallbacks, read_boots
from imagebuilder.nodes.evidence.consoles import find_consoles
from imagebuilder.nodes.evidence.seen import Seen
from imagebuilder.nodes.references import find_release
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree
from imagebuilder.ui import format_age

ILL = (Verdict.MISSING, Verdict.WRONG, Verdict.DEGRADED)  # the worst first
URGENT = (Condition.FAILED, *ILL, Condition.SILENT, Condition.BOOTING, Condition.UNKNOWN)
WORD = "imagebuilder.netconsole="
SILENT = "its kernel sent nothing in its last boot, although it was told to (netconsole)"


@dataclass(frozen=True)
class NodeView:
    """A node's state; `health` is None if it does not answer, or was not looked at.

    `warnings` are what a person should know beside both.
    """

    state: NodeState
    health: Health | None
    warnings: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Ready, and healthy as far as that was looked at."""
        return self.state.ready and (self.health is None or self.health.verdict is Verdict.OK)

    @property
    def illness(self) -> Verdict | None:
        """What is wrong with a node that is ready; None if nothing is known to be."""
        return self.health.verdict if self.health and self.health.verdict in ILL else None

    @property
    def word(self) -> Verdict | Condition:
        """What matters most of it: its illness, else its condition."""
        return self.illness or self.state.condition

    @property
    def urgency(self) -> int:
        """What needs a person comes first."""
        return URGENT.index(self.word) if self.word in URGENT else len(URGENT)

    @property
    def last(self) -> Observation | None:
        """The newest evidence."""
        health, newest = self.health, next(iter(self.state.evidence), None)
        if health and health.at and (newest is None or health.at > newest.at):
            return Observation("health", health.at, health.words)
        return newest

    @property
    def words(self) -> str:
        """What a person should know of it first."""
        if self.health and self.health.verdict is not Verdict.OK:
            return self.health.words
        return self.state.words

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        health = self.health.as_json() if self.health else None
        return {**self.state.as_json(), "health": health, "warnings": [*self.warnings]}

    def row(self, now: datetime) -> tuple[str, ...]:
        """As a line of a table."""
        state, health = self.state, self.health
        same = state.next and state.next == state.release
        following = "the same" if same else state.next or "nothing"
        verdict = health.verdict.value if health else "-"
        age = f"{format_age(now - health.at)} ago" if health and health.at else "-"
        return (
            state.node, state.condition.value, verdict, age, state.release or "-", following,
            "; ".join((self.words, *self.warnings)),
        )  # fmt: skip


def overview(
    tree: Tree, nodes: Sequence[Node], *, health: bool = True, ask: bool = False
) -> list[NodeView]:
    """How each node is now, in the order given; with `health`, also how those that answer are.

    `ask` asks them over ssh, about 70 ms of a processor for each, instead of taking their reports.
    """
    seen = last_records(tree, nodes)
    states = observe(tree, nodes, seen)
    if health and not ask:
        return views_of(tree, nodes, states, seen)
    ready = {state.node for state in states if state.ready and health}
    said = read_health(tree, [node for node in nodes if node.name in ready]) if ready else {}
    warnings = find_warnings(tree, nodes, seen)
    return [NodeView(state, said.get(state.node), warnings.get(state.node, ())) for state in states]


def views_of(
    tree: Tree,
    nodes: Sequence[Node],
    states: Sequence[NodeState],
    seen: Mapping[str, Seen | None],
    warnings: Mapping[str, tuple[str, ...]] | None = None,
) -> list[NodeView]:
    """Nodes with what they reported of their health, as long as they answer.

    `warnings` are by node, where they are known already.
    """
    now = datetime.now(UTC)
    warnings = find_warnings(tree, nodes, seen) if warnings is None else warnings
    return [
        NodeView(
            state,
            reported_health(state.node, seen[state.node], now) if state.ready else None,
            warnings.get(state.node, ()),
        )
        for state in states
    ]


def find_warnings(
    tree: Tree, nodes: Iterable[Node], seen: Mapping[str, Seen | None]
) -> dict[str, tuple[str, ...]]:
    """What a person should know of nodes beside their state, by name.

    Of consoles root alone knows; nobody else is warned.
    """
    wanted = [node for node in nodes if node.netconsole]
    boots = read_boots(tree) if wanted else {}
    found: dict[str, tuple[str, ...]] = {}
    for node in wanted:
        record, last = boots.get(node.name), seen.get(node.name)
        try:
            if record and last and is_silent(tree, node, record.asked, last):
                found[node.name] = (SILENT,)
        except RootError:
            break
    return found


def is_silent(tree: Tree, node: Node, fetched: str, last: Seen) -> bool:
    """Whether nothing came since it fetched its script at `fetched` and went through its initrd."""
    if last.stage != LAST_STAGE or not "" < fetched <= last.last:
        return False
    consoles = find_consoles(tree, node.name)
    begun = datetime.fromisoformat(fetched).timestamp()
    if consoles and consoles[-1].heard >= begun:
        return False
    config = read_config(tree, last.given)  # the setting may be newer than the boot
    return config is not None and any(word.startswith(WORD) for word in config.words)


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
