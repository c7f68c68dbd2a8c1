# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fleet_screen`: print what `status --watch` shows of 800 simulated nodes.

scripts/terminal-picture docs/pictures/status-watch.svg ' .venv/bin/python -m tests.fleet_screen'
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from imagebuilder.fleet.addresses import last_seen
from imagebuilder.fleet.overview import find_states, views_of
from imagebuilder.fleet.rollout.journal import find_rollouts
from imagebuilder.fleet.rollout.types import LiveRollout, RolloutStage, RolloutStatus
from imagebuilder.fleet.screen import FleetShot, draw
from imagebuilder.nodes.load import load_nodes
from imagebuilder.tree import Tree
from tests.fleet_world import FleetWorld, make_world

WIDTH, HEIGHT = 100, 24


def take_shot(world: FleetWorld) -> FleetShot:
    """What is found at one moment; a roll-out of rack 1 is under way."""
    world.plant_history()
    nodes = load_nodes(world.tree).nodes
    seen = {node.name: last_seen(world.tree, node) for node in nodes}
    states = find_states(world.tree, nodes, seen, world.answers, datetime.now(UTC))
    (stopped,) = find_rollouts(world.tree)
    stages = [*[RolloutStage.DONE] * 11, *[RolloutStage.REBOOTING] * 3, RolloutStage.CHECKING]
    going_on = [
        replace(node, stage=stage, why="")
        for node, stage in zip(
            stopped.nodes, [*stages, *[RolloutStage.WAITING] * len(stopped.nodes)], strict=False
        )
    ]
    running = replace(stopped, status=RolloutStatus.RUNNING, why="", nodes=tuple(going_on))
    views = views_of(world.tree, nodes, states, seen)
    return FleetShot(
        datetime.now(UTC), views, [LiveRollout(running, runs=True, process="ada, process 4711")]
    )


def main() -> None:
    console = Console(force_terminal=True, color_system="standard", width=WIDTH, height=HEIGHT)
    with tempfile.TemporaryDirectory() as top:
        shot = take_shot(make_world(Path(top)))
    console.print(draw(Tree(Path("/srv/netboot")), shot, 10, WIDTH, HEIGHT))


if __name__ == "__main__":
    main()
