# SPDX-License-Identifier: Apache-2.0
"""The fleet fits every terminal, begins with what needs a person, and says what is left out."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from imagebuilder.fleet.health import Health, Verdict
from imagebuilder.fleet.overview import NodeView
from imagebuilder.fleet.rollout.types import (
    LiveRollout,
    Rollout,
    RolloutNode,
    RolloutStage,
    RolloutStatus,
)
from imagebuilder.fleet.screen import FleetShot, draw
from imagebuilder.fleet.state import Condition, NodeState, Observation
from imagebuilder.tree import Tree
from tests.unit.each import for_each

NOW = datetime(2026, 11, 23, 2, 21, 9, tzinfo=UTC)
TREE = Tree(Path("/srv/netboot"))
NODES = tuple(RolloutNode(f"n{i}", 2, RolloutStage.DONE) for i in range(12))
ROLLOUT = Rollout("demo", "1", "2", "ada", "2026-11-23T02:00:00+00:00", NODES)


def view(
    name: str, condition: Condition, verdict: Verdict | None = None, words: str = "w"
) -> NodeView:
    seen = (Observation("ssh", NOW - timedelta(seconds=3), "x"),)
    state = NodeState(name, condition, words, "demo@1", "demo@1", seen)
    health = Health(name, verdict, words, NOW, "demo@1", "b", "report") if verdict else None
    return NodeView(state, health)


def fleet(many: int) -> list[NodeView]:
    """Most are ready; one that failed and one that is ill are the last."""
    ready = [view(f"node{n:03}", Condition.READY, Verdict.OK) for n in range(many - 2)]
    ill = view("ill", Condition.READY, Verdict.MISSING, "pci: no PCI device 1002:7480")
    return [*ready, ill, view("broken", Condition.FAILED, None, "its boot failed 3 s ago")]


def show(
    views: Sequence[NodeView],
    width: int = 120,
    height: int = 24,
    rollouts: Sequence[LiveRollout] = (),
) -> list[str]:
    """The lines of a terminal of that size."""
    console = Console(file=io.StringIO(), width=width, height=height)
    shot = FleetShot(NOW, views, rollouts)
    with console.capture() as capture:
        console.print(draw(TREE, shot, 10, width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_what_needs_a_person_comes_first_and_the_rest_is_counted() -> None:
    lines = show(fleet(800))
    assert lines[0] == "800 nodes: 1 failed, 1 missing device, 798 ready"
    assert lines[2].split() == ["node", "state", "health", "seen", "runs"]
    assert lines[3].split()[:5] == ["broken", "failed", "-", "3", "s"]
    assert lines[4].split()[:3] == ["ill", "ready", "missing"]
    assert "pci: no PCI device 1002:7480" in lines[4]
    assert lines[5].split()[:3] == ["node000", "ready", "ok"]
    assert len(lines) == 24
    shown = len(lines) - 5
    assert lines[-2] == f"and {800 - shown} more nodes: {800 - shown} ready"
    assert lines[-1] == "02:21:09 UTC, every 10 s, /srv/netboot; Ctrl-C ends it"


SIZES = itertools.product(
    (20, 40, 80, 100, 120, 150, 300), (1, 3, 5, 6, 10, 24, 100), (2, 5, 6, 19, 20, 21, 800)
)


@for_each({f"{size}": size for size in SIZES})
def test_it_fits_every_terminal(size: tuple[int, int, int]) -> None:
    width, height, many = size
    lines = show(fleet(many), width, height, [LiveRollout(ROLLOUT, runs=False)] * 7)
    assert max(map(len, lines)) <= width
    if height >= 10:
        assert len(lines) <= height
    found = [line for line in lines if line.startswith("and ") and "node" in line]
    rows = [line for line in lines if line.startswith(("node0", "node1", "ill", "broken"))]
    left = int(found[-1].split()[1]) if found else 0
    assert len(rows) + left == many, "each node is shown or counted"
    if height >= 10 and found:
        assert len(lines) == height, "no line is wasted"


def test_the_columns_that_fit() -> None:
    assert "boots next" not in show(fleet(3), 149)[2]
    assert "boots next" in show(fleet(3), 150)[2]
    assert "runs" not in show(fleet(3), 119)[2]
    narrow = show(fleet(3), 40)
    assert narrow[2].split() == ["node", "state"]
    assert narrow[4].startswith("ill      missing device  pci")


def test_roll_outs_under_way_or_waiting_for_a_person_are_at_the_top() -> None:
    stages = [RolloutStage.REBOOTING, RolloutStage.DRAINING, RolloutStage.WAITING]
    more = tuple(RolloutNode(f"m{n}", 2, stage) for n, stage in enumerate(stages))
    running = replace(ROLLOUT, nodes=(*NODES, *more))
    stopped = replace(ROLLOUT, status=RolloutStatus.STOPPED, why="1 of 12 nodes failed")
    done = replace(ROLLOUT, status=RolloutStatus.DONE)
    live = LiveRollout(running, runs=True, process="ada, process 7")
    others = [LiveRollout(each, runs=False) for each in (done, stopped)]
    lines = show(fleet(2), 200, 24, [others[0], live, others[1]])
    assert lines[1:4] == [
        "roll-out of demo@2: running; 12 of 15 nodes done, 1 draining, 1 rebooting; run by ada, "
        "process 7",
        "roll-out of demo@2: stopped: 1 of 12 nodes failed; 12 of 12 nodes done",
        "",
    ]
    killed = replace(live, runs=False)
    assert ": interrupted while running; 12 of" in show(fleet(2), 200, 24, [killed])[1]
    many = show(fleet(2), 200, 24, [live] * 6)
    assert many[4] == "and 3 more roll-outs: imagebuilder rollout status"


def test_words_of_strangers_neither_move_nor_colour_anything() -> None:
    evil = view("n1", Condition.FAILED, None, "\x1b[2J\x1b]0;x\x07[bold]\r\n\u202e")
    text = "\n".join(show([evil], 140))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]" in text
    assert len(show([evil], 140)) == 5


def test_no_nodes() -> None:
    assert show([])[0].startswith("0 nodes")
