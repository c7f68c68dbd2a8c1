# SPDX-License-Identifier: Apache-2.0
"""Nights that roll out: within the window, once, and never what stopped before."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.fleet.rollout.command import resume_rollout
from imagebuilder.fleet.rollout.journal import (
    PAUSE,
    find_rollout,
    make_wish,
    obey,
    rolling_out,
    save_rollout,
)
from imagebuilder.fleet.rollout.machine import WINDOW_OVER, aborted
from imagebuilder.fleet.rollout.show import render_rollout
from imagebuilder.fleet.rollout.types import (
    LiveRollout,
    Rollout,
    RolloutStage,
    RolloutStatus,
    RolloutTerms,
)
from imagebuilder.nightly.context import Nightly
from imagebuilder.nightly.run import RunRecord, boot_test, roll_out_within
from imagebuilder.nightly.site import find_rollout_wish
from imagebuilder.nightly.types import (
    Ending,
    NightlyOptions,
    NightlyRollout,
    NightlyRun,
    NightlyStage,
    ProfileRun,
)
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.nodes.edit import NodeEdit, set_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.publish.channel.move import rollback
from imagebuilder.recipe.model_nightly import NightlyModel
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui
from imagebuilder.window import DAYS
from tests.unit.fleet.rollout_world import (
    NEW,
    OLD,
    OTHER,
    UNTESTED,
    RolloutWorld,
    make_world,
    order,
)
from tests.unit.planted_reports import make_report, plant

pytestmark = pytest.mark.slow

NAMES = ("n1", "n2", "n3", "n4")
ALWAYS = "00:00-24:00"


def closed() -> str:
    """A window that is not open today, nor around midnight."""
    return f"{DAYS[(datetime.now(UTC).weekday() + 3) % 7]} 12:00-12:01"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutWorld:
    made = make_world(tmp_path, NAMES)
    monkeypatch.setenv("PATH", f"{made.sim}/path:{os.environ['PATH']}")
    return made


def night(world: RolloutWorld, *, window: str = ALWAYS, failed: bool = False) -> NightlyRun:
    """The end of a night in which the candidate was built and tested, or was not."""
    top, ui = world.top, Ui(io.StringIO())
    terms = RolloutTerms(timeout=20, drain=os.fspath(world.sim / "scheduler"), untested=UNTESTED)
    wanted = NightlyRollout(window, terms, batch="1")
    options = NightlyOptions(("demo",), top / "report", rollout=wanted)
    settings = Settings(top, top / "state", top / "cache", top / "site.yaml")
    nightly = Nightly(
        options, settings, world.tree, ui, boot_test({}), Upstream({}, settings.cache, ui),
        "20261122T023000Z-1", lambda _: None,
    )  # fmt: skip
    began = NightlyRun("20261122T023000Z-1", "2026-11-22T02:30:00+00:00", "builder", "1")
    record = RunRecord(began, options.folder, world.tree, ui)
    ending = Ending.FAILED if failed else Ending.FRESH
    record.add(ProfileRun("demo", ending, NightlyStage.TEST, version=NEW, candidate=NEW))
    roll_out_within("demo", record, nightly)
    record.finish()
    return record.run


def begun(world: RolloutWorld, canary: str = "") -> Rollout:
    """A roll-out that was made and written down, and whose process is gone."""
    rollout = world.start(order(canary=canary, batch="1"))
    scheduler = os.fspath(world.sim / "scheduler")
    made = replace(rollout, terms=replace(rollout.terms, drain=scheduler))
    save_rollout(world.tree, made)
    return made


def boots(world: RolloutWorld) -> list[list[str]]:
    return [world.boots(name) for name in NAMES]


def stable(world: RolloutWorld) -> str:
    return find_version(world.tree, "demo", "stable")


def point_candidate(world: RolloutWorld, version: str) -> None:
    link = world.tree.channel("demo", "candidate")
    link.unlink()
    link.symlink_to(f"../../http/releases/demo/{version}")


def test_within_the_window_every_node_gets_it_and_it_is_stable(world: RolloutWorld) -> None:
    done = night(world)
    (told,) = done.profiles
    assert (told.ending, told.stage, told.stable) == (Ending.PROMOTED, NightlyStage.ROLLOUT, NEW)
    assert not done.failed
    assert boots(world) == [[NEW]] * 4
    assert told.reasons == (f"the roll-out of demo@{NEW} is done; 4 of 4 nodes have it",)
    again = night(world)
    assert again.profiles[0].reasons == ()
    assert boots(world) == [[NEW]] * 4


def test_outside_of_the_window_nothing_starts(world: RolloutWorld) -> None:
    before = world.tree.nodes_file.read_text()
    window = closed()
    done = night(world, window=window)
    assert done.profiles[0].reasons == (
        f"demo@{NEW} waits for the maintenance window, {window}",
    )  # fmt: skip
    assert not done.failed
    assert find_rollout(world.tree, "demo") is None
    assert (boots(world), stable(world)) == ([[]] * 4, OLD)
    assert world.tree.nodes_file.read_text() == before


def test_what_failed_to_build_is_not_rolled_out(world: RolloutWorld) -> None:
    assert night(world, failed=True).failed
    assert find_rollout(world.tree, "demo") is None


def test_one_that_stopped_fails_the_night_and_is_not_tried_again(world: RolloutWorld) -> None:
    world.plant("n1", "computes wrong numbers")
    first = night(world)
    assert first.failed
    (told,) = first.profiles
    assert (told.ending, told.stage, told.stable) == (Ending.FAILED, NightlyStage.ROLLOUT, OLD)
    assert told.fault
    assert f"the roll-out of demo@{NEW} is stopped: 1 of 4 nodes failed" in told.fault.what
    assert "n1: health: wrong results: MUL_MAT differs" in Path(told.log).read_text()
    second = night(world)
    assert second.failed
    assert second.profiles[0].fault == told.fault
    assert boots(world) == [[NEW, OLD], [], [], []]
    # The next release is.
    point_candidate(world, OTHER)
    assert not night(world).failed
    assert (boots(world)[1:], stable(world)) == ([[OTHER]] * 3, OTHER)


def test_a_window_that_ends_pauses_it_and_the_next_goes_on(world: RolloutWorld) -> None:
    running = replace(begun(world, canary="n3"), window="Sun 02:00-05:00")
    inside = datetime(2026, 11, 22, 3).astimezone()

    def clock() -> datetime:
        return inside + timedelta(hours=2) if world.boots("n3") else inside

    with rolling_out(world.tree, "demo"):
        run_of = world.run()
        run_of.clock = clock
        paused = run_of.go(running)
    assert (paused.status, paused.why) == (RolloutStatus.PAUSED, WINDOW_OVER)
    assert ", for nightly runs within Sun 02:00-05:00" in render_rollout(
        LiveRollout(paused, runs=False)
    )
    assert {n.name: n.stage.value for n in paused.nodes} == {
        "n3": "done", "n1": "waiting", "n2": "waiting", "n4": "waiting",
    }  # fmt: skip
    waits = night(world, window=closed())
    assert not waits.failed
    assert "waits for the maintenance window" in waits.profiles[0].reasons[0]
    assert boots(world) == [[], [], [NEW], []]
    done = night(world)
    assert done.profiles[0].ending is Ending.PROMOTED
    assert boots(world) == [[NEW]] * 4


def test_the_end_of_a_window_lets_go_of_nodes_that_still_work(world: RolloutWorld) -> None:
    (world.sim / "nodes/n1/jobs").write_text("job\n" * 40)
    running = replace(begun(world, canary="n1"), window="Sun 02:00-05:00")
    inside = datetime(2026, 11, 22, 4, 59).astimezone()
    turns: list[int] = []

    def clock() -> datetime:
        turns.append(0)
        return inside if len(turns) < 4 else inside + timedelta(minutes=1)

    run_of = world.run()
    run_of.clock = clock
    paused = run_of.go(running)
    assert paused.status is RolloutStatus.PAUSED
    assert {node.stage for node in paused.nodes} == {RolloutStage.WAITING}
    assert (world.sim / "resumed").read_text() == "n1\n"
    assert boots(world) == [[]] * 4


def test_what_a_person_runs_or_paused_or_took_back_is_left_alone(world: RolloutWorld) -> None:
    rollout = begun(world)
    with rolling_out(world.tree, "demo"):  # in another process, as far as locks go
        done = night(world)
    assert not done.failed
    assert "a roll-out is in progress: " in done.profiles[0].reasons[0]
    # It was begun by hand, and its process is gone.
    killed = night(world)
    assert "is running and not finished" in killed.profiles[0].warnings[0]
    # A window paused it, and then a person did.
    save_rollout(world.tree, replace(rollout, status=RolloutStatus.PAUSED, window=ALWAYS))
    make_wish(world.tree, "demo", PAUSE)
    obey(world.tree, replace(rollout, status=RolloutStatus.PAUSED, window=ALWAYS))
    assert "is paused and not finished" in night(world).profiles[0].warnings[0]
    given_up = replace(aborted(rollout, OLD), status=RolloutStatus.ABORTED)
    save_rollout(world.tree, given_up)
    assert "is aborted" in night(world).profiles[0].reasons[0]
    assert boots(world) == [[]] * 4


def test_a_release_that_was_taken_back_is_not_rolled_out_again(world: RolloutWorld) -> None:
    assert not night(world).failed
    rollback(world.tree, "demo", Ui(io.StringIO()))
    (told,) = night(world).profiles
    assert f"rolled back {NEW}" in told.reasons[0]
    assert stable(world) == OLD


def test_a_person_who_resumes_it_is_bound_to_no_window(world: RolloutWorld) -> None:
    rollout = replace(begun(world), status=RolloutStatus.PAUSED, window=closed())
    save_rollout(world.tree, rollout)
    done = resume_rollout(
        world.tree, "demo", world.env, Ui(io.StringIO()), wait=lambda _: None
    )  # fmt: skip
    assert (done.status, done.window, done.why) == (RolloutStatus.DONE, "", "")


def test_a_profile_that_no_node_follows_is_promoted_if_it_passed(world: RolloutWorld) -> None:
    set_nodes(world.tree, lambda nodes: {n.name: NodeEdit({"version": OLD}) for n in nodes.nodes})
    (told,) = night(world).profiles
    assert told.fault
    assert "boot test" in told.fault.what
    assert stable(world) == OLD
    plant(world.tree, make_report(world.tree, f"demo@{NEW}", 1))
    (told,) = night(world).profiles
    assert (told.ending, stable(world)) == (Ending.PROMOTED, NEW)
    assert find_rollout(world.tree, "demo") is None
    assert boots(world) == [[]] * 4


def model(**rollout: object) -> NightlyModel:
    return NightlyModel.model_validate({"rollout": rollout} if rollout else {})


def test_what_was_asked_for_is_checked_before_anything_is_built() -> None:
    site = model(window="Sun 02:00-05:00", batch="2", accept=["unknown"], timeout=60)
    promotes, wanted = find_rollout_wish(site, promote=None, rollout=None)
    assert not promotes
    assert wanted
    assert (wanted.window, wanted.batch, wanted.terms.timeout) == ("Sun 02:00-05:00", "2", 60)
    assert find_rollout_wish(site, promote=True, rollout=False) == (True, None)
    with pytest.raises(InputError, match="exclude each other"):
        find_rollout_wish(site, promote=True, rollout=None)
    with pytest.raises(InputError, match="needs a maintenance window"):
        find_rollout_wish(model(), promote=None, rollout=True)
    with pytest.raises(InputError, match="is not a share of nodes"):
        find_rollout_wish(model(window=ALWAYS, batch="0"), promote=None, rollout=None)
    with pytest.raises(ValueError, match="is not a window"):
        model(window="Sundays")
