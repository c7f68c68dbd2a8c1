# SPDX-License-Identifier: Apache-2.0
"""Nightly runs that roll out and are killed at any moment: the next one goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from imagebuilder.process import run
from tests.sampling import times
from tests.unit.fleet.rollout_world import NEW, RolloutWorld, make_world
from tests.unit.nightly.test_rollout import NAMES, night, stable
from tests.workshop import CHECKOUT

# A run that is killed at a change of a file or a start of a program.
KILLED = """\
import sys
from pathlib import Path
from imagebuilder.tree import Tree
from tests.unit.fleet.dying import die_after
from tests.unit.fleet.rollout_world import RolloutWorld
from tests.unit.nightly.test_rollout import night
top = Path(sys.argv[1])
world = RolloutWorld(top, Tree(top / "tree"), {"HOME": str(top)})
dying = die_after(int(sys.argv[2]))
night(world)
print(dying.left)
"""


def test_killed_at_any_moment_the_next_night_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]

    def killed_after(events: int, place: Path) -> tuple[RolloutWorld, int]:
        world = make_world(place, NAMES[:2])
        monkeypatch.setenv("PATH", f"{world.sim}/path:{path}")
        done = run(
            [sys.executable, "-c", KILLED, world.top, str(events)],
            env={"PYTHONPATH": os.fspath(CHECKOUT), "PATH": os.environ["PATH"]},
            cwd=CHECKOUT,
            check=False,
        )
        assert done.status in (0, -9), done.stderr
        return world, events - int(done.stdout) if done.status == 0 else 0

    _, whole = killed_after(10_000, tmp_path / "whole")
    assert whole > 20
    count = times(4, 40)
    for number in range(count):
        world, ended = killed_after(1 + number * whole // count, tmp_path / str(number))
        assert not ended
        done = night(world)
        assert not done.failed, done.profiles
        assert [world.boots(name) for name in NAMES[:2]] == [[NEW], [NEW]]
        assert stable(world) == NEW
