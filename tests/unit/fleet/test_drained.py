# SPDX-License-Identifier: Apache-2.0
"""down and restart where a scheduler is: work ends first, and who stays drained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.fleet import verbs
from imagebuilder.fleet.state import Condition, NodeState
from imagebuilder.fleet.verbs import (
    REASON,
    Crew,
    Draining,
    NodeOutcome,
    act_drained,
    done,
    missed,
    power_down,
)
from imagebuilder.nodes.types import Node
from imagebuilder.tree import make_tree

NAMES = ("n1", "n2", "n3")


@dataclass
class Scheduler:
    """Its nodes work for so many looks more."""

    work: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    fails: bool = False

    def check(self, names: Sequence[str]) -> None:
        pass

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        assert reason == REASON
        self.closed |= {*names}
        found = {name: "a job" if self.work.get(name) else "" for name in names}
        self.work = {name: max(0, left - 1) for name, left in self.work.items()}
        return found

    def resume(self, names: Sequence[str], reason: str) -> None:
        assert reason == REASON
        if self.fails:
            raise HostError("the scheduler does not answer")
        self.closed -= {*names}


@dataclass(frozen=True)
class FakeCrew(Crew):
    """Nodes of which those in `ready` answer."""

    ready: tuple[str, ...] = NAMES

    def states(self, names: Sequence[str]) -> dict[str, NodeState]:
        condition = {True: Condition.READY, False: Condition.SILENT}
        return {
            name: NodeState(name, condition[name in self.ready], "as is", "", "", ())
            for name in names
        }


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def crew(tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch) -> FakeCrew:
    monkeypatch.setattr(verbs, "WORK_POLL", 0.01)
    nodes = tuple(Node(name, ("52:54:00:00:00:01",), "gpu") for name in NAMES)
    return FakeCrew(make_tree(tmp_path / "tree"), nodes, {}, heard.append)


@dataclass
class Acts:
    """What was done to whom, together; n2 does not come back if `loses`."""

    calls: list[list[str]] = field(default_factory=list)
    loses: bool = False

    def __call__(self, crew: Crew) -> list[NodeOutcome]:
        self.calls.append(crew.names)
        return [
            missed(n, "silent") if self.loses and n == "n2" else done(n, "well") for n in crew.names
        ]


def test_each_is_touched_once_its_work_has_ended_and_gets_work_again(
    crew: FakeCrew, heard: list[str]
) -> None:
    scheduler, acts = Scheduler({"n2": 3}), Acts()
    outcomes = act_drained(crew, Draining(scheduler, 60), acts, force=False, back=True)
    assert acts.calls == [["n1", "n3"], ["n2"]]
    assert [(o.node, o.done) for o in outcomes] == [(name, True) for name in NAMES]
    assert not scheduler.closed
    assert heard == ["n2: waiting for its work to end: a job"]


def test_one_whose_work_goes_on_is_not_touched_and_is_let_go(crew: FakeCrew) -> None:
    scheduler, acts = Scheduler({"n3": 10**9}), Acts()
    outcomes = act_drained(crew, Draining(scheduler, 0.05), acts, force=False, back=False)
    assert acts.calls == [["n1", "n2"]]
    assert outcomes[2] == missed("n3", "was not touched: a job")
    assert scheduler.closed == {"n1", "n2"}  # they are off


def test_one_that_does_not_come_back_stays_drained(crew: FakeCrew) -> None:
    scheduler = Scheduler()
    outcomes = act_drained(crew, Draining(scheduler, 60), Acts(loses=True), force=False, back=True)
    assert scheduler.closed == {"n2"}
    assert outcomes[1].words == "silent; if it was drained, `up` lets work onto it"


def test_a_silent_one_is_drained_only_before_its_power_is_cut(crew: FakeCrew) -> None:
    some = FakeCrew(crew.tree, crew.nodes, {}, crew.tell, ready=("n1",))
    for force, closed in ((False, {"n1"}), (True, {*NAMES})):
        scheduler, acts = Scheduler(), Acts()
        act_drained(some, Draining(scheduler, 60), acts, force=force, back=False)
        assert scheduler.closed == closed
        assert sorted(name for call in acts.calls for name in call) == [*NAMES]


def test_an_interrupt_lets_go_of_those_that_were_not_touched(crew: FakeCrew) -> None:
    scheduler = Scheduler({"n3": 10**9})

    def interrupted(_: Crew) -> list[NodeOutcome]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        act_drained(crew, Draining(scheduler, 60), interrupted, force=False, back=True)
    assert scheduler.closed == {"n1", "n2"}


def test_a_scheduler_that_fails_afterwards_hides_no_outcome(
    crew: FakeCrew, heard: list[str]
) -> None:
    outcomes = act_drained(
        crew, Draining(Scheduler(fails=True), 60), Acts(), force=False, back=True
    )
    assert all(outcome.done for outcome in outcomes)
    assert heard[0] == "the scheduler does not answer"


class Blind:
    """A driver that cannot tell."""

    def on(self) -> None:
        pass

    def off(self) -> None:
        pass

    def is_on(self) -> bool | None:
        return None


def test_one_that_was_silent_before_is_not_said_to_be_off(crew: FakeCrew) -> None:
    silent = FakeCrew(crew.tree, crew.nodes[:1], {"n1": Blind()}, crew.tell, ready=())
    words = "did not answer before either, and its power driver cannot tell whether it is off"
    assert power_down(silent, 60, force=False) == [missed("n1", words)]
    assert power_down(silent, 60, force=True)[0].done  # its power was cut
