# SPDX-License-Identifier: Apache-2.0
"""Roll-outs of simulated nodes, from the order to the channel, with everything that goes wrong."""

from __future__ import annotations

import io
import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.journal import (
    ABORT,
    PAUSE,
    find_rollout,
    make_wish,
    rolling_out,
    save_rollout,
)
from imagebuilder.fleet.rollout.machine import aborted, advance, resumed
from imagebuilder.fleet.rollout.run import POLL
from imagebuilder.fleet.rollout.show import render_rollout
from imagebuilder.fleet.rollout.start import check_wish
from imagebuilder.fleet.rollout.types import (
    LiveRollout,
    PowerCut,
    Rollout,
    RolloutNode,
    RolloutStage,
    RolloutStatus,
    RolloutTerms,
    Sight,
)
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui
from tests.unit.fleet.rollout_world import NEW, OLD, OTHER, RolloutWorld, make_world, order

pytestmark = pytest.mark.slow

NAMES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutWorld:
    made = make_world(tmp_path, NAMES)
    monkeypatch.setenv("PATH", f"{made.sim}/path:{os.environ['PATH']}")
    return made


def pins(world: RolloutWorld) -> dict[str, str]:
    return {node.name: node.version for node in load_nodes(world.tree).nodes if node.version}


def stages(rollout: Rollout) -> dict[str, str]:
    return {node.name: node.stage.value for node in rollout.nodes}


def test_all_get_it_one_boot_each_and_stable_follows(world: RolloutWorld) -> None:
    (world.sim / "nodes/n2/jobs").write_text("1\n2\n")
    before = world.tree.nodes_file.read_text()
    done = world.run().go(world.start(order(canary="n3", batch="1")))
    assert done.status is RolloutStatus.DONE, render_rollout(LiveRollout(done, runs=False))
    assert [node.phase for node in done.nodes] == [1, 2, 0, 2]
    assert {name: world.boots(name) for name in NAMES} == {name: [NEW] for name in NAMES}
    assert find_version(world.tree, "demo", "stable") == NEW
    assert world.tree.nodes_file.read_text() == before  # no pin is left, and no line is different
    assert sorted((world.sim / "resumed").read_text().split()) == list(NAMES)
    assert find_rollout(world.tree, "demo") == done


def test_it_waits_only_while_nothing_changes(world: RolloutWorld) -> None:
    """A step is followed by a look at once; a node with two jobs is looked at three times."""
    (world.sim / "nodes/n1/jobs").write_text("1\n2\n")
    waits: list[float] = []
    run = world.run()
    run.wait = waits.append
    assert run.go(world.start(order())).status is RolloutStatus.DONE
    assert waits == [POLL, POLL]


@pytest.mark.parametrize("days", [400, -400])
def test_a_clock_that_is_set_makes_no_node_late(world: RolloutWorld, days: int) -> None:
    (world.sim / "nodes/n1/jobs").write_text("1\n2\n3\n")
    said = io.StringIO()
    run, by = world.run(Ui(said)), [timedelta()]

    def wait(seconds: float) -> None:
        by[0] += timedelta(days=days, seconds=seconds)

    run.wait, run.clock, run.steady = wait, lambda: datetime.now(UTC) + by[0], time.monotonic
    done = run.go(world.start(order()))
    assert done.status is RolloutStatus.DONE, render_rollout(LiveRollout(done, runs=False))
    assert {name: world.boots(name) for name in NAMES} == {name: [NEW] for name in NAMES}
    assert f"set {'forward' if days > 0 else 'back'} by" in said.getvalue()


@pytest.mark.parametrize("boot", ["", "another"])
@pytest.mark.parametrize("days", [400, -400])
def test_a_clock_that_is_set_between_two_processes_makes_no_node_late(
    world: RolloutWorld, days: int, boot: str
) -> None:
    jobs = world.sim / "nodes/n1/jobs"
    jobs.write_text("1\n2\n3\n")
    rollout = kill_while_draining(world)
    said = io.StringIO()
    run = world.run(Ui(said))
    run.clock = lambda: datetime.now(UTC) + timedelta(days=days)
    run.steady = time.monotonic
    if boot:
        run.boot, run.steady = lambda: boot, lambda: 5.0
    done = run.go(rollout)
    assert done.status is RolloutStatus.DONE, render_rollout(LiveRollout(done, runs=False))
    where = "forward" if days > 0 else "back"
    expected = "it is unknown how much time has passed" if boot else f"was set {where} by"
    assert expected in said.getvalue()


def test_a_node_is_late_after_the_time_that_passed_between_two_processes(
    world: RolloutWorld,
) -> None:
    (world.sim / "nodes/n1/jobs").write_text("1\n" * 1000)
    rollout = kill_while_draining(world)
    run = world.run()
    passed = rollout.terms.drain_timeout + 1
    run.clock = lambda: datetime.now(UTC) + timedelta(seconds=passed)
    run.steady = lambda: time.monotonic() + passed
    done = run.go(rollout)
    assert stages(done)["n1"] == "left alone"


def kill_while_draining(world: RolloutWorld) -> Rollout:
    """The journal of a process that was killed while n1 was drained."""
    run = world.run()
    run.clock, run.steady = lambda: datetime.now(UTC), time.monotonic

    def wait(_: float) -> None:
        raise KeyboardInterrupt

    run.wait = wait
    with pytest.raises(KeyboardInterrupt):
        run.go(world.start(order()))
    rollout = find_rollout(world.tree, "demo")
    assert rollout is not None
    assert stages(rollout)["n1"] == "draining"
    return rollout


def test_it_waits_while_nodes_yaml_is_wrong_or_gone(world: RolloutWorld) -> None:
    """Somebody edits it meanwhile: nobody is left alone for that, and nothing ends."""
    file, text = world.tree.nodes_file, world.tree.nodes_file.read_text()
    said = io.StringIO()
    run = world.run(Ui(said))
    wrong = ["nodes: {", text.replace("profile: demo", "profile: 7 8", 1), None]
    rollout = world.start(order())

    def wait(seconds: float) -> None:
        del seconds
        if not wrong:
            file.write_text(text)
        elif (each := wrong.pop(0)) is None:
            file.unlink()
        else:
            file.write_text(each)

    run.wait = wait
    wait(0)
    done = run.go(rollout)
    assert done.status is RolloutStatus.DONE, render_rollout(LiveRollout(done, runs=False))
    assert {name: world.boots(name) for name in NAMES} == {name: [NEW] for name in NAMES}
    told = [line for line in said.getvalue().splitlines() if "until nodes.yaml is valid" in line]
    assert ["7 8" in line for line in told] == [False, True, False], told
    assert "is missing" in told[-1]


def test_a_canary_that_fails_stops_it_and_goes_back_alone(world: RolloutWorld) -> None:
    world.plant("n1", "computes wrong numbers")
    done = world.run().go(world.start(order()))
    assert done.status is RolloutStatus.STOPPED
    assert stages(done) == {"n1": "returned", "n2": "waiting", "n3": "waiting", "n4": "waiting"}
    assert world.boots("n1") == [NEW, OLD]
    assert [world.boots(name) for name in NAMES[1:]] == [[], [], []]
    assert find_version(world.tree, "demo", "stable") == OLD
    assert pins(world) == {"n1": OLD}
    screen = render_rollout(LiveRollout(done, runs=False))
    assert "n1: health: wrong results: MUL_MAT differs from the processor (returned)" in screen
    assert f"stable of demo is as before: {OLD}" in screen


def test_a_silent_node_has_its_power_cut_and_others_of_its_batch_stay(world: RolloutWorld) -> None:
    world.plant("n2", "panics")
    done = world.run().go(world.start(order(batch="2", timeout=1)))
    assert stages(done) == {"n1": "done", "n2": "returned", "n3": "done", "n4": "waiting"}
    assert (world.sim / "cuts").read_text() == "n2\n"
    assert world.told("n2", "release") == OLD
    assert pins(world) == {"n1": NEW, "n2": OLD, "n3": NEW}
    assert find_version(world.tree, "demo", "stable") == OLD
    world.plant("n2", "")
    again = world.run().go(resumed(done, datetime.now(UTC)))
    assert again.status is RolloutStatus.DONE
    assert world.boots("n1") == [NEW]  # not once more
    assert pins(world) == {}


def test_a_node_that_was_told_to_reboot_has_not_returned_before_it_did() -> None:
    """The roll-out is aborted while the node still runs the boot that it is to end."""
    began = datetime(2026, 11, 23, 12, tzinfo=UTC)
    node = RolloutNode("n1", 0, RolloutStage.REBOOTING, began.isoformat(), "boot-1", touched=True)
    rollout = aborted(Rollout("demo", OLD, NEW, "ada", began.isoformat(), (node,)), OLD)
    still_up = Sight("boot-1", f"demo@{OLD}", verdict=Verdict.OK)

    def after(rollout: Rollout, sight: Sight, seconds: int) -> Rollout:
        return advance(rollout, {"n1": sight}, OLD, began + timedelta(seconds=seconds))

    rollout = after(rollout, still_up, 1)
    assert stages(after(rollout, still_up, 60)) == {"n1": "returning"}
    assert stages(after(rollout, still_up, 120)) == {"n1": "returned"}  # it was never told
    back = replace(still_up, boot_id="boot-2")
    assert stages(after(rollout, back, 60)) == {"n1": "returned"}


def test_a_node_on_its_way_back_to_the_old_release_is_not_interrupted() -> None:
    began = datetime(2026, 11, 23, 12, tzinfo=UTC)
    node = RolloutNode(
        "n1", 0, RolloutStage.RETURNING, began.isoformat(), "", touched=True, powered=True
    )
    rollout = Rollout("demo", OLD, NEW, "ada", began.isoformat(), (node,))
    limit = rollout.terms.timeout

    def after(booting: str, seconds: float) -> RolloutNode:
        sight = Sight(problem="left the initrd 9 s ago", booting=booting)
        return advance(rollout, {"n1": sight}, OLD, began + timedelta(seconds=seconds)).nodes[0]

    assert after(f"demo@{OLD}", limit + 1) == node
    assert after(f"demo@{NEW}", limit + 1).cut is PowerCut.DUE
    assert after(f"demo@{OLD}", 2 * limit + 1).cut is PowerCut.DUE


@pytest.mark.parametrize("drain", ["none", "slurm"])
def test_a_node_that_falls_silent_before_its_reboot_is_waited_for_as_long_as_work_can_take(
    drain: str,
) -> None:
    began = datetime(2026, 11, 23, 12, tzinfo=UTC)
    terms = RolloutTerms(drain=drain)
    node = RolloutNode("n1", 0, RolloutStage.DRAINING, began.isoformat(), "boot-1", touched=True)
    rollout = Rollout("demo", OLD, NEW, "ada", began.isoformat(), (node,), terms)
    limit = {"none": terms.timeout, "slurm": terms.drain_timeout}[drain]

    def after(seconds: float) -> RolloutNode:
        sight = Sight(problem="no answer")
        return advance(rollout, {"n1": sight}, OLD, began + timedelta(seconds=seconds)).nodes[0]

    assert after(limit - 1) == node
    assert after(limit + 1).stage is RolloutStage.LEFT
    why = {"none": "no longer answered before its reboot", "slurm": "could not be drained in time"}
    assert after(limit + 1).why == f"{why[drain]}: no answer"


def test_pause_ends_what_began_and_abort_takes_everything_back(world: RolloutWorld) -> None:
    rollout = world.start(order())
    make_wish(world.tree, "demo", PAUSE)
    done = world.run().go(rollout)
    assert done.status is RolloutStatus.PAUSED
    assert set(stages(done).values()) == {"waiting"}
    world.plant("n4", "serves on the processor")
    done = world.run().go(resumed(done, datetime.now(UTC)))
    assert stages(done) == {"n1": "done", "n2": "done", "n3": "done", "n4": "returned"}
    with pytest.raises(InputError, match="is stopped and begins no node"):
        check_wish(world.tree, "demo", PAUSE)
    assert check_wish(world.tree, "demo", ABORT) == done
    make_wish(world.tree, "demo", ABORT)
    back = world.run().go(done)
    assert back.status is RolloutStatus.ABORTED
    assert {world.told(name, "release") for name in NAMES} == {OLD}
    assert [len(world.boots(name)) for name in NAMES] == [2, 2, 2, 2]
    assert pins(world) == {}
    assert find_version(world.tree, "demo", "stable") == OLD


def test_a_scheduler_that_is_silent_once_is_asked_again(world: RolloutWorld) -> None:
    (world.sim / "nodes/n1/silent").touch()
    (world.sim / "nodes/n3/silent").touch()
    (world.sim / "nodes/n3/jobs").write_text("1\n2\n3\n")  # it is the last
    with pytest.raises(WorkError, match="the scheduler is silent"):
        world.run().go(world.start(order(batch="100%")))
    resumed_by_then = (world.sim / "resumed").read_text().split()
    assert {*resumed_by_then} == {"n1", "n2", "n4"}
    rollout = find_rollout(world.tree, "demo")
    assert rollout
    assert world.run().go(rollout).status is RolloutStatus.DONE
    assert {*(world.sim / "resumed").read_text().split()} == {*NAMES}
    assert [world.boots(name) for name in NAMES] == [[NEW]] * 4


def test_verdicts_that_a_site_accepts_are_good(world: RolloutWorld) -> None:
    world.plant("n1", "never says how it is")
    world.plant("n2", "serves on the processor")
    accepted = (Verdict.UNKNOWN, Verdict.DEGRADED)
    assert world.run().go(world.start(order(accepted=accepted))).status is RolloutStatus.DONE


def test_a_node_that_has_the_release_already_is_not_rebooted(world: RolloutWorld) -> None:
    (world.sim / "nodes/n2/release").write_text(f"{NEW}\n")
    done = world.run().go(world.start(order()))
    assert done.status is RolloutStatus.DONE
    assert world.boots("n2") == []


def test_what_a_person_writes_into_nodes_yaml_meanwhile_stays(world: RolloutWorld) -> None:
    rollout = world.start(order())
    text = world.tree.nodes_file.read_text()
    for name, key in (("n2", f"version: {OTHER}"), ("n3", f"version: {OLD}")):
        text = re.sub(rf"({name}: .*)}}", rf"\1, {key}}}", text)
    text = re.sub(r"  n4: .*\n", "", text)
    world.tree.nodes_file.write_text(f"# by hand\n{text}")
    done = world.run().go(rollout)
    assert {n.name: n.why for n in done.nodes if n.stage is RolloutStage.LEFT} == {
        "n2": f"was pinned to {OTHER} by hand",
        "n3": f"was pinned to {OLD} by hand",
        "n4": "is no longer in nodes.yaml",
    }
    assert done.status is RolloutStatus.DONE
    assert [world.boots(name) for name in NAMES] == [[NEW], [], [], []]
    assert world.tree.nodes_file.read_text() == f"# by hand\n{text}"


def test_a_channel_that_somebody_moves_stops_it(world: RolloutWorld) -> None:
    rollout = world.start(order())
    move_stable(world, OTHER)
    done = world.run().go(rollout)
    assert done.status is RolloutStatus.STOPPED
    assert f"stable was moved to {OTHER} meanwhile" in done.why
    assert not any(world.boots(name) for name in NAMES)


def test_a_channel_that_somebody_moves_is_not_moved_back_by_one_that_could_not_promote(
    world: RolloutWorld,
) -> None:
    left = leave_promoting(world)
    move_stable(world, OTHER)
    done = world.run().go(left)
    assert done.status is RolloutStatus.STOPPED
    assert f"stable was moved to {OTHER} meanwhile" in done.why
    assert find_version(world.tree, "demo", "stable") == OTHER


def test_one_that_could_not_promote_can_be_aborted(world: RolloutWorld) -> None:
    left = leave_promoting(world)
    make_wish(world.tree, "demo", ABORT)
    assert world.run().go(left).status is RolloutStatus.ABORTED
    assert [world.boots(name) for name in NAMES] == [[NEW, OLD]] * 4
    assert find_version(world.tree, "demo", "stable") == OLD
    assert pins(world) == {}
    assert aborted(left, NEW) is left, "its release is stable: it is over"


def test_nodes_go_back_to_the_old_release_wherever_stable_is(world: RolloutWorld) -> None:
    """Otherwise they boot what is stable, and are rebooted as long as that is another."""
    world.plant("n2", "has no card")
    done = world.run().go(world.start(order(batch="1")))
    move_stable(world, OTHER)
    make_wish(world.tree, "demo", ABORT)
    back = world.run().go(done)
    assert back.status is RolloutStatus.ABORTED
    assert (stages(back)["n1"], world.boots("n1")) == ("returned", [NEW, OLD])
    assert pins(world) == {}


def test_one_that_is_aborted_drains_and_keeps_to_the_limit(
    world: RolloutWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that got the release has work again."""
    world.plant("n4", "has no card")
    done = world.run().go(world.start(order(batch="100%", at_once=1)))
    assert stages(done) == {"n1": "done", "n2": "done", "n3": "done", "n4": "returned"}
    (world.sim / "nodes/n1/jobs").write_text("1\n2\n")
    flying: list[int] = []

    def save(tree: Tree, rollout: Rollout) -> None:
        flying.append(sum(node.in_flight for node in rollout.nodes))
        save_rollout(tree, rollout)

    monkeypatch.setattr("imagebuilder.fleet.rollout.run.save_rollout", save)
    said = io.StringIO()
    make_wish(world.tree, "demo", ABORT)
    back = world.run(Ui(said)).go(done)
    assert back.status is RolloutStatus.ABORTED
    assert max(flying) == 1
    lines = [line for line in said.getvalue().splitlines() if line.startswith("n1: ")]
    assert [line.split(": ")[1] for line in lines] == ["draining", "returning", "returned"]
    assert (world.sim / "nodes/n1/jobs").read_text() == "", "its work has ended"
    assert [world.boots(name) for name in NAMES] == [[NEW, OLD]] * 4
    assert not [name for name in NAMES if (world.sim / "nodes" / name / "drained").exists()]


def leave_promoting(world: RolloutWorld) -> Rollout:
    """What a roll-out left that gave every node the release, and could not make it stable."""
    rollout = world.start(order())
    kernel = world.tree.release(ReleaseName("demo", NEW)) / "vmlinuz"
    content = kernel.read_bytes()
    kernel.write_bytes(b"damaged")
    with pytest.raises(WorkError, match="vmlinuz"):
        world.run().go(rollout)
    kernel.write_bytes(content)
    left = find_rollout(world.tree, "demo")
    assert left
    assert left.status is RolloutStatus.PROMOTING
    return left


def move_stable(world: RolloutWorld, version: str) -> None:
    link = world.tree.channel("demo", "stable")
    link.unlink()
    link.symlink_to(f"../../http/releases/demo/{version}")


def test_a_node_that_a_person_pins_after_its_turn_is_not_taken_back(world: RolloutWorld) -> None:
    world.plant("n2", "has no card")
    done = world.run().go(world.start(order(batch="1")))
    assert pins(world) == {"n1": NEW, "n2": OLD}
    text = world.tree.nodes_file.read_text()
    world.tree.nodes_file.write_text(text.replace(f"version: {NEW}", f"version: {OTHER}"))
    make_wish(world.tree, "demo", ABORT)
    back = world.run().go(done)
    assert back.status is RolloutStatus.ABORTED
    assert stages(back)["n1"] == "left alone"
    assert pins(world) == {"n1": OTHER}
    assert world.boots("n1") == [NEW]


def test_pins_stay_until_stable_has_moved(world: RolloutWorld) -> None:
    """Otherwise a node that reboots in between gets the old release."""
    left = leave_promoting(world)
    assert pins(world) == {name: NEW for name in NAMES}
    done = world.run().go(left)
    assert done.status is RolloutStatus.DONE
    assert pins(world) == {}
    assert find_version(world.tree, "demo", "stable") == NEW


def test_a_node_that_is_silent_before_is_never_touched(world: RolloutWorld) -> None:
    (world.sim / "nodes/n2/power").write_text("off\n")
    done = world.run().go(world.start(order()))
    assert done.status is RolloutStatus.DONE
    assert stages(done)["n2"] == "left alone"
    assert not (world.sim / "cuts").exists()
    assert world.boots("n2") == []


def test_one_that_is_cut_short_is_refused_to_others_and_names_who(world: RolloutWorld) -> None:
    world.start(order())
    with pytest.raises(WorkError, match=r"since .* is running and not finished"):
        world.start(order())
    with (
        rolling_out(world.tree, "demo"),
        pytest.raises(WorkError, match=rf"in progress: .*, process {os.getpid()}, since 20"),
    ):
        world.start(order())


WRONG = {
    "nope": "profile nope has no release in ",
    "demo@9": "no release of demo matches '9'",
    f"demo@{OLD}": "is stable already",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_releases_are_said_before_anything_is_touched(world: RolloutWorld, name: str) -> None:
    with pytest.raises(InputError, match=WRONG[name]):
        world.start(order(name))
    assert find_rollout(world.tree, "demo") is None


def test_wrong_nodes_are_said_before_anything_is_touched(world: RolloutWorld) -> None:
    for canary, message in (
        ("n9", 'no node named "n9"'),
        ("n1,n1!n1", "no node belongs to this set"),
    ):
        with pytest.raises(InputError, match=message):
            world.start(order(canary=canary))
    (world.sim / "nodes/n2/power").write_text("off\n")
    with pytest.raises(InputError, match="--canary n2: cannot be logged in to: ssh: connect"):
        world.start(order(canary="n2,n2"))
    for batch in ("0%", "half", "101%", "0", "-1"):
        with pytest.raises(InputError, match="is not a share of nodes"):
            world.start(order(batch=batch))
    text = world.tree.nodes_file.read_text().replace("profile: demo", "profile: demo, version: x")
    world.tree.nodes_file.write_text(text.replace("version: x", f"version: {OLD}"))
    with pytest.raises(InputError, match="no node follows stable of demo"):
        world.start(order())
    world.tree.nodes_file.write_text("nodes: {}\n")
    with pytest.raises(InputError, match="no node boots demo"):
        world.start(order())
    assert find_rollout(world.tree, "demo") is None


def test_an_own_channel_comes_back_when_the_pin_goes(world: RolloutWorld) -> None:
    """Its group follows candidate; the node itself stable."""
    text = world.tree.nodes_file.read_text()
    text = re.sub("(n2: .*)}", r"\1, channel: stable}", text)
    world.tree.nodes_file.write_text(
        text.replace("defaults:\n", "defaults:\n  channel: candidate\n")
    )
    done = world.run().go(world.start(order()))
    assert [node.name for node in done.nodes] == ["n2"]
    assert done.status is RolloutStatus.DONE
    assert "channel: stable}" in world.tree.nodes_file.read_text()
