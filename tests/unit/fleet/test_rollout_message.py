# SPDX-License-Identifier: Apache-2.0
"""Roll-outs tell receivers how they go, and wait for none of them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.fleet.rollout.journal import PAUSE, find_live, is_reported, make_wish, rolling_out
from imagebuilder.fleet.rollout.machine import aborted
from imagebuilder.fleet.rollout.message import (
    describe,
    make_message,
    report_interruption,
    tell_nobody,
    telling,
)
from imagebuilder.fleet.rollout.types import (
    LiveRollout,
    Rollout,
    RolloutNode,
    RolloutStage,
    RolloutStatus,
)
from imagebuilder.notify.receivers import find_receivers
from imagebuilder.notify.send import notifying
from imagebuilder.recipe.model_notify import NotifyModel
from tests.unit.fleet.rollout_world import NEW, OLD, RolloutWorld, make_world, order


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutWorld:
    made = make_world(tmp_path, ("n1", "n2"))
    monkeypatch.setenv("PATH", f"{made.sim}/path:{os.environ['PATH']}")
    return made


def go(world: RolloutWorld, rollout: Rollout) -> list[dict[str, object]]:
    """Run it; what a receiver was sent."""
    kept = world.top / "got"
    kept.unlink(missing_ok=True)
    words = ["sh", "-c", f"cat >> {kept}"]
    site = NotifyModel.model_validate({"to": {"r": {"exec": words}}})
    with notifying(find_receivers(site, {}), pytest.fail) as notifier:
        run = world.run()
        run.tell = telling(notifier)
        run.go(rollout)
    return [json.loads(line) for line in kept.read_text().splitlines()]


def test_one_that_ends_well(world: RolloutWorld) -> None:
    started, finished = go(world, world.start(order()))
    assert started["kinds"] == ["rollout-started"]
    assert finished["kinds"] == ["rollout-finished"]
    assert finished["text"] == f"imagebuilder: roll-out of demo@{NEW} to 2 nodes finished"
    told = finished["rollout"]
    assert isinstance(told, dict)
    assert (told["from"], told["to"], told["status"]) == (OLD, NEW, "done")
    assert (told["counts"], told["failed"]) == ({"done": 2}, [])


def test_one_that_stops_says_why_and_one_given_up_is_finished(world: RolloutWorld) -> None:
    world.plant("n1", "has no card")
    rollout = world.start(order())
    _, stopped = go(world, rollout)
    assert stopped["kinds"] == ["rollout-stopped"]
    assert "1 of 2 nodes failed (n1: health: missing device: 0 of 1 card" in str(stopped["text"])
    told = stopped["rollout"]
    assert isinstance(told, dict)
    assert told["failed"] == [
        {"node": "n1", "stage": "returned", "why": "health: missing device: 0 of 1 card"}
    ]
    (given_up,) = go(world, aborted(replace(rollout, status=RolloutStatus.PAUSED), OLD))
    assert given_up["kinds"] == ["rollout-finished"]
    assert "aborted: the roll-out was aborted" in str(given_up["text"])


def test_one_that_a_person_pauses(world: RolloutWorld) -> None:
    rollout = world.start(order())
    make_wish(world.tree, "demo", PAUSE)
    (paused,) = go(world, rollout)
    assert paused["kinds"] == ["rollout-paused"]


def test_one_that_ends_by_an_error_is_told_of_before_anybody_else_can_find_out(
    world: RolloutWorld,
) -> None:
    (world.sim / "nodes/n1/jobs").write_text("a job\na job\n")
    rollout = world.start(order())
    site = NotifyModel.model_validate({"to": {"r": {"exec": ["true"]}}})

    def fail(_: float) -> None:
        raise KeyboardInterrupt

    with notifying(find_receivers(site, {}), pytest.fail) as notifier:
        run = world.run()
        run.tell, run.wait = telling(notifier), fail
        with rolling_out(world.tree, "demo"):
            with pytest.raises(KeyboardInterrupt):
                run.go(rollout)
            live = replace(find_live(world.tree, rollout), runs=False)
            assert is_reported(world.tree, live)
    assert notifier.lanes["r"].sent == 2, "that it began, and that it was interrupted"


def test_where_nobody_is_told_nobody_is_noted(world: RolloutWorld) -> None:
    """Somebody else may know whom to tell."""
    live = find_live(world.tree, world.start(order()))
    report_interruption(world.tree, live, tell_nobody)
    assert not is_reported(world.tree, live)
    report_interruption(world.tree, live, lambda _: True)
    assert is_reported(world.tree, live)


def test_a_receiver_that_hangs_does_not_delay_it(world: RolloutWorld) -> None:
    site = NotifyModel.model_validate({"to": {"r": {"exec": ["sleep", "600"]}}})
    warnings: list[str] = []
    with notifying(find_receivers(site, {}), warnings.append) as notifier:
        run = world.run()
        run.tell = telling(notifier)
        done = run.go(world.start(order()))
        assert notifier.lanes["r"].sent == 0
        assert done.status is RolloutStatus.DONE
        begun = time.monotonic()
        notifier.close(0.1, last=True)
        assert time.monotonic() - begun < 10
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (RolloutStatus.RUNNING, ""),
        (RolloutStatus.PAUSED, "run imagebuilder rollout resume demo to continue it"),
        (
            RolloutStatus.STOPPED,
            "run imagebuilder rollout resume demo to try the failed nodes again",
        ),
        (RolloutStatus.DONE, ""),
    ],
)
def test_a_mail_says_what_to_do_next(status: RolloutStatus, hint: str) -> None:
    """It is sent by the process that runs it, which ends right after it."""
    nodes = (RolloutNode("n1", 0, RolloutStage.WAITING),)
    rollout = Rollout("demo", OLD, NEW, "ada", "2026-01-01T00:00:00+00:00", nodes, status=status)
    details = make_message(LiveRollout(rollout, runs=True), "rollout-stopped").details
    assert hint in details
    assert ("imagebuilder rollout" in details) is bool(hint)


def test_a_large_one_is_short() -> None:
    nodes = tuple(
        RolloutNode(f"node{n:03}", 2, RolloutStage.LOST, why="x" * 1000) for n in range(800)
    )
    rollout = Rollout("demo", OLD, NEW, "ada", "2026-01-01T00:00:00+00:00", nodes)
    live = LiveRollout(replace(rollout, status=RolloutStatus.STOPPED), runs=False)
    assert describe(live)["omitted"] == 600
    message = make_message(live, "rollout-stopped")
    assert len(json.dumps(message.as_json())) < 100_000
    assert len(message.text) <= 300
