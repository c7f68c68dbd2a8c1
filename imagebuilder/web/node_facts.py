# SPDX-License-Identifier: Apache-2.0
"""What is known of one node beside its state: its boots, console, health so far, its drift.

None stands for what this user may not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from imagebuilder.digest import Json
from imagebuilder.drift.nodes import drift_of_nodes
from imagebuilder.drift.show import render_node
from imagebuilder.drift.types import NodeDrift
from imagebuilder.errors import ImagebuilderError, RootError
from imagebuilder.explain import DaemonLines, NodeTrace, read_trace
from imagebuilder.nodes.evidence.consoles import find_consoles
from imagebuilder.nodes.evidence.health_report import HealthChange, read_history
from imagebuilder.nodes.evidence.report_log import ReportedBoot, find_boots
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.tree import Tree
from imagebuilder.untrusted import clean

MOST_LINES = 300  # of a boot
MOST_LENGTH = 400  # characters of a line


@dataclass(frozen=True)
class ShownConsole:
    """The last lines that the kernel said in a boot; `left_out` were before them."""

    start: datetime
    lines: tuple[str, ...]
    left_out: int

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        lines: list[Json] = [*self.lines]
        return {"boot": self.start.isoformat(), "lines": lines, "left-out": self.left_out}


@dataclass(frozen=True)
class NodeStory:
    """`trace` is what its last boot left in logs; the others have the newest first."""

    trace: NodeTrace
    boots: tuple[ReportedBoot, ...] | None
    consoles: tuple[ShownConsole, ...] | None
    history: tuple[HealthChange, ...]
    drift: NodeDrift | None

    @property
    def drift_words(self) -> tuple[str, ...]:
        """Why a reboot would change the node, and what else to know, as `drift` says it."""
        return tuple(line.strip() for line in [*render_node(self.drift)][1:]) if self.drift else ()

    def as_json(self) -> Mapping[str, Json]:
        """For programs: a stable contract."""
        boots, consoles = self.boots, self.consoles
        return {
            "boots": None if boots is None else [boot.as_json() for boot in boots],
            "consoles": None if consoles is None else [each.as_json() for each in consoles],
            "health-history": [describe(change) for change in self.history],
            "drift": self.drift.as_json() if self.drift else None,
        }


def describe(change: HealthChange) -> dict[str, Json]:
    report = change.report
    return {
        "at": report.at,
        "verdict": report.verdict,
        "words": report.words,
        "release": change.release,
        "boot-id": report.boot_id,
    }


def read_story(tree: Tree, nodes: Nodes, node: Node, logs: DaemonLines) -> NodeStory:
    """The story of a node, of which the boot server's `logs` tell too; nothing is asked of it."""
    return NodeStory(
        read_trace(tree, node, logs),
        read_boots(tree, node),
        read_consoles(tree, node.name),
        tuple(reversed(read_history(tree, node.name))),
        find_drift(tree, nodes, node),
    )


def read_boots(tree: Tree, node: Node) -> tuple[ReportedBoot, ...] | None:
    try:
        return find_boots(tree, node)
    except PermissionError:
        return None


def read_consoles(tree: Tree, name: str) -> tuple[ShownConsole, ...] | None:
    """The boots of a node that are kept, the last one first."""
    try:
        boots = find_consoles(tree, name)
        said = [(boot.start, boot.lines()) for boot in reversed(boots)]
    except (RootError, PermissionError):
        return None
    return tuple(
        ShownConsole(
            start,
            tuple(clean(line, MOST_LENGTH) for line in lines[-MOST_LINES:]),
            max(0, len(lines) - MOST_LINES),
        )
        for start, lines in said
    )


def find_drift(tree: Tree, nodes: Nodes, node: Node) -> NodeDrift | None:
    """Whether a reboot would change it; by what is on record, the node is not asked."""
    try:
        return drift_of_nodes(tree, nodes, [node])[0]
    except (ImagebuilderError, PermissionError):
        return None
