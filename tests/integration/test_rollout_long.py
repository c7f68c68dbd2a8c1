# SPDX-License-Identifier: Apache-2.0
"""Roll-outs that are killed at any moment, of many nodes, and as people type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from imagebuilder.fleet.rollout.journal import ABORT, find_rollout, make_wish
from imagebuilder.fleet.rollout.types import RolloutStage, RolloutStatus
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.process import Completed, run
from tests.integration.started import PATIENCE
from tests.sampling import times
from tests.unit.fleet.rollout_world import (
    NEW,
    OLD,
    OTHER,
    UNTESTED,
    RolloutWorld,
    make_world,
    order,
)
from tests.workshop import CHECKOUT

NAMES = ("n1", "n2")


def pins(world: RolloutWorld) -> dict[str, str]:
    return {node.name: node.version for node in load_nodes(world.tree).nodes if node.version}


# Goes on with the journal, and is killed at a change of a file or a start of a program.
KILLED = """\
import sys
from pathlib import Path
from tests.unit.fleet.dying import die_after
from tests.unit.fleet.rollout_world import RolloutWorld
from imagebuilder.fleet.rollout.journal import find_rollout, rolling_out
from imagebuilder.tree import Tree
top = Path(sys.argv[1])
world = RolloutWorld(top, Tree(top / "tree"), {"HOME": str(top)})
with rolling_out(world.tree, "demo"):
    dying = die_after(int(sys.argv[2]))
    world.run().go(find_rollout(world.tree, "demo"))
print(dying.left)
"""
MANY = 10_000


def go_on(world: RolloutWorld, events: int) -> int | None:
    """Go on in another process until so many events; how many there were, None if it was killed."""
    done = run(
        [sys.executable, "-c", KILLED, world.top, str(events)],
        env={"PYTHONPATH": os.fspath(CHECKOUT)},
        cwd=CHECKOUT,
        check=False,
    )
    if done.status < 0:
        return None
    assert done.status == 0, done.stderr
    return events - int(done.stdout)


@pytest.mark.parametrize("fault", ["", "computes wrong numbers"])
def test_killed_at_any_moment_it_goes_on_without_another_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    start = os.environ["PATH"]
    moments = 0
    for number in range(times(2, 100)):
        world = make_world(tmp_path / str(number), NAMES)
        monkeypatch.setenv("PATH", f"{world.sim}/path:{start}")
        world.plant("n2", fault)
        world.start(order())
        if not moments:
            moments = go_on(world, MANY) or 0
            assert 20 < moments < 1000
        else:
            at = 1 + (number * 7919) % moments
            while go_on(world, at) is None:  # killed again and again, a little later each time
                at += 3
        done = find_rollout(world.tree, "demo")
        assert done
        expected = {"n1": [NEW], "n2": [NEW, OLD] if fault else [NEW]}
        assert {name: world.boots(name) for name in NAMES} == expected, f"killed at {number}"
        wanted = (RolloutStatus.STOPPED, OLD) if fault else (RolloutStatus.DONE, NEW)
        assert (done.status, find_version(world.tree, "demo", "stable")) == wanted
        assert pins(world) == ({"n1": NEW, "n2": OLD} if fault else {})
        assert {*(world.sim / "resumed").read_text().split()} == {"n1", "n2"}


def test_killed_at_any_moment_of_an_abort_each_node_goes_back_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = os.environ["PATH"]
    moments = 0
    for number in range(times(2, 40)):
        world = make_world(tmp_path / str(number), NAMES)
        monkeypatch.setenv("PATH", f"{world.sim}/path:{start}")
        world.plant("n2", "computes wrong numbers")
        world.run().go(world.start(order()))
        (world.sim / "nodes/n1/jobs").write_text("1\n2\n")
        make_wish(world.tree, "demo", ABORT)
        if not moments:
            moments = go_on(world, MANY) or 0
            assert 10 < moments < 1000
        else:
            at = 1 + (number * 7919) % moments
            while go_on(world, at) is None:
                at += 3
        done = find_rollout(world.tree, "demo")
        assert done
        assert {name: world.boots(name) for name in NAMES} == {key: [NEW, OLD] for key in NAMES}
        assert done.status is RolloutStatus.ABORTED, f"killed at {number}"
        assert pins(world) == {}
        assert not [name for name in NAMES if (world.sim / "nodes" / name / "drained").exists()]


FAULTS = {
    "panics": "did not come back: does not answer to ssh",
    "hangs": "did not come back: does not answer to ssh",
    "no network": "did not come back: does not answer to ssh",
    "ssh is dead": "did not come back: does not answer to ssh",
    "computes wrong numbers": "health: wrong results: MUL_MAT differs from the processor",
    "has no card": "health: missing device: 0 of 1 card",
    "serves on the processor": "health: degraded: 0 of 33 layers on the card",
    "never says how it is": "health: unknown: has no verdict",
    "boots something else": f"booted demo@{OTHER} instead",
    "may not reboot": "did not reboot: did not take the command: sudo: a password is required",
    "reboots by itself": f"rebooted by itself while it was checked, into demo@{NEW}",
}


def test_two_hundred_nodes_fail_in_many_ways_and_every_verdict_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = times(30, 200)
    names = [f"node{number}" for number in range(count)]
    world = make_world(tmp_path, names)
    monkeypatch.setenv("PATH", f"{world.sim}/path:{os.environ['PATH']}")
    planted = dict(zip(names[count // 2 :: count // 25], FAULTS, strict=False))
    assert len(planted) == len(FAULTS)
    for name, fault in planted.items():
        world.plant(name, fault)
    done = world.run().go(world.start(order()))
    assert done.status is RolloutStatus.STOPPED
    assert done.why == f"{len(FAULTS)} of {count} nodes failed"
    whys = {node.name: node.why for node in done.nodes if node.failed}
    assert whys.keys() == planted.keys()
    for name, fault in planted.items():
        assert whys[name].startswith(FAULTS[fault]), (fault, whys[name])
        assert world.told(name, "release") == OLD
    good = [node for node in done.nodes if node.name not in planted]
    assert Counter(node.stage for node in good) == {RolloutStage.DONE: count - len(FAULTS)}
    assert all(world.boots(node.name) == [NEW] for node in good)
    assert find_version(world.tree, "demo", "stable") == OLD


def typed(world: RolloutWorld, *words: str) -> Completed:
    command = [sys.executable, "-m", "imagebuilder.cli.main", "rollout", *words]
    return run(
        command, env={"IMAGEBUILDER_TREE": os.fspath(world.tree.path)}, cwd=CHECKOUT, check=False
    )


def test_as_a_person_types_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, NAMES)
    monkeypatch.setenv("PATH", f"{world.sim}/path:{os.environ['PATH']}")
    assert "no roll-out yet" in typed(world, "status").stdout
    assert "no roll-out of demo is unfinished" in typed(world, "resume", "demo").stderr
    world.plant("n1", "has no card")
    options = ("--untested", UNTESTED)
    first = typed(world, "demo", "--drain", os.fspath(world.sim / "scheduler"), *options)
    assert first.status == 1, first.stderr
    assert "n1: health: missing device: 0 of 1 card (returned)" in first.stdout
    world.plant("n1", "")
    work = world.sim / "nodes/n1/jobs"
    work.write_text("a job\n" * 600)  # until it was paused, however slow this host is
    env = {**os.environ, "IMAGEBUILDER_TREE": os.fspath(world.tree.path)}
    command = [sys.executable, "-m", "imagebuilder.cli.main", "rollout", "resume", "demo"]
    with (
        subprocess.Popen(command, cwd=CHECKOUT, env=env, stderr=subprocess.PIPE) as running,
        ExitStack() as stack,
    ):
        stack.callback(running.kill)
        assert running.stderr
        assert running.stderr.readline() == b"n1: draining\n"
        second = typed(world, "demo", *options)
        assert second.status == 1
        assert f"process {running.pid}, since 20" in second.stderr
        paused = typed(world, "pause", "demo")
        assert f"process {running.pid}, since" in paused.stderr, paused.stderr
        work.with_name("idle").touch()
        running.wait(PATIENCE)
    assert json.loads(typed(world, "status", "--json").stdout)[0]["status"] == "paused"
    third = typed(world, "resume", "demo")
    assert third.status == 0, third.stdout + third.stderr
    assert typed(world, "status").status == 0
    assert world.boots("n1") == [NEW, OLD, NEW]
    assert world.boots("n2") == [NEW]
    wrong = typed(world, "demo", "--accept", "good", *options)
    assert wrong.status == 2
    assert "is not a verdict" in wrong.stderr
