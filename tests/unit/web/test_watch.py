# SPDX-License-Identifier: Apache-2.0
"""What changed is found and told; what only became older is not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from imagebuilder.fleet.rollout.journal import find_rollouts, rolling_out, save_rollout
from imagebuilder.fleet.rollout.types import RolloutStatus
from imagebuilder.tree import ReleaseName
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import WebSnapshot
from imagebuilder.web.watch import Watcher, find_changes
from tests.fleet_world import NEW, OLD, FleetWorld
from tests.unit.nodes_world import move_channel
from tests.unit.notify.servers import until
from tests.workshop import CHECKOUT

PATIENCE = 60.0


def changes(site: WebSite) -> list[str]:
    """The names of events, with the node where it is of one, since the last snapshot."""
    old, new = site.watcher.snapshot, site.watcher.maker.take()
    site.watcher.snapshot = new
    found = []
    for item in find_changes(old, new):
        assert isinstance(item.data, dict)
        found.append(f"{item.name} {item.data.get('node', '')}".strip())
    return found


def test_nothing_happened(site: WebSite) -> None:
    before = site.watcher.maker.stamp()
    assert changes(site) == []
    assert site.watcher.maker.stamp() == before


def test_a_report_is_an_event(world: FleetWorld, site: WebSite) -> None:
    before = site.watcher.maker.stamp()
    world.report(3, "root", NEW, timedelta(seconds=1))
    assert site.watcher.maker.stamp() != before
    assert changes(site) == ["node node003", "releases"]


def test_a_verdict_is_an_event_and_its_repetition_is_not(world: FleetWorld, site: WebSite) -> None:
    day = timedelta(days=1)
    world.report(3, "switch-root", OLD, day, "degraded")
    assert "node node003" in changes(site)
    time.sleep(1.1)  # a later report of the same
    world.report(3, "switch-root", OLD, day, "degraded")
    assert "node node003" not in changes(site)


def test_a_channel_that_moves_is_an_event_of_its_nodes(world: FleetWorld, site: WebSite) -> None:
    before = site.watcher.maker.stamp()
    move_channel(world.tree, "rx7600xt", "stable", NEW)
    assert site.watcher.maker.stamp() != before
    found = changes(site)
    assert found.count("releases") == 1
    assert len(found) == 71


def test_a_node_that_is_removed_is_an_event(world: FleetWorld, site: WebSite) -> None:
    lines = world.tree.nodes_file.read_text().splitlines()
    world.tree.nodes_file.write_text("\n".join(lines[:-1]) + "\n")
    assert "node-removed node079" in changes(site)


def test_a_release_that_goes_is_an_event(world: FleetWorld, site: WebSite) -> None:
    folder = world.tree.release(ReleaseName("generic", NEW))
    folder.rename(folder.with_name("other"))
    assert "releases" in changes(site)


# Rolls out until it is killed.
ROLLS_OUT = """\
import sys, time
from pathlib import Path
from imagebuilder.fleet.rollout.journal import rolling_out
from imagebuilder.tree import Tree
with rolling_out(Tree(Path(sys.argv[1])), "rx7600xt"):
    print("runs", flush=True)
    time.sleep(600)
"""


def test_a_roll_out_that_is_killed_is_an_event_and_its_page_says_so(
    world: FleetWorld, client: TestClient, site: WebSite
) -> None:
    world.plant_history()
    (stopped,) = find_rollouts(world.tree)
    running = replace(stopped, status=RolloutStatus.RUNNING, why="")

    def page(*parts: str) -> bool:
        return all(part in client.get("/rollouts").text for part in parts)

    argv = [sys.executable, "-c", ROLLS_OUT, str(world.tree.path)]
    with (
        subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE) as process,
        site.watcher.broker.reading("") as reader,
    ):
        assert process.stdout
        assert process.stdout.readline() == b"runs\n"
        save_rollout(world.tree, running)
        until(lambda: page("</i> running</span>", "; running now"))
        assert not client.get("/api/v1/rollouts/rx7600xt").json()["interrupted"]
        reader.events.clear()
        process.kill()
        until(lambda: "rollout" in [event.name for event in reader.events])
    assert json.loads(reader.events[-1].data)["interrupted"] is True
    hint = (
        "run imagebuilder rollout resume rx7600xt to continue it, or rollout abort rx7600xt to take"
    )
    assert page("interrupted while running", hint)
    assert client.get("/api/v1/rollouts/rx7600xt").json()["interrupted"]


def test_whether_a_roll_out_runs_is_checked_all_the_time(world: FleetWorld, site: WebSite) -> None:
    world.plant_history()
    before = site.watcher.maker.stamp()
    with rolling_out(world.tree, "rx7600xt"):
        assert site.watcher.maker.stamp() != before
    assert site.watcher.maker.stamp() == before


def test_a_change_becomes_an_event(world: FleetWorld, site: WebSite) -> None:
    async def run() -> None:
        watcher = site.watcher
        watching = asyncio.create_task(watcher.run())
        await asyncio.sleep(1)
        with watcher.broker.reading("") as reader:
            reader.woken.clear()
            world.report(4, "network", NEW, timedelta(0))
            await asyncio.wait_for(reader.woken.wait(), PATIENCE)
            event = reader.events[0]
        watching.cancel()
        assert json.loads(event.data)["node"] == "node004"

    asyncio.run(run())


def test_of_two_snapshots_at_once_the_newer_one_stays(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, took = site.watcher, 0
    before = watcher.snapshot.number

    async def in_turns(work: Callable[..., object], *words: object) -> object:
        """Do it at once; the first snapshot is ready after everything else that can be."""
        nonlocal took
        done = work(*words)
        if isinstance(done, WebSnapshot):
            took += 1
            for _ in range(100 if took == 1 else 0):
                await asyncio.sleep(0)
        return done

    async def run() -> None:
        await asyncio.gather(watcher.refresh(), watcher.refresh())

    monkeypatch.setattr(asyncio, "to_thread", in_turns)
    asyncio.run(run())
    assert took == 2
    assert watcher.snapshot.number == before + 2


def test_a_failure_is_tried_again(world: FleetWorld, site: WebSite) -> None:
    """A folder that cannot be read ends nothing."""
    seen = world.tree.path / "seen"

    async def run(watcher: Watcher) -> None:
        watching = asyncio.create_task(watcher.run())
        seen.rename(seen.with_name("gone"))
        await asyncio.sleep(1)
        number = watcher.snapshot.number
        seen.with_name("gone").rename(seen)
        async with asyncio.timeout(PATIENCE):
            while watcher.snapshot.number == number:
                await asyncio.sleep(0.1)
        assert not watching.done()
        watching.cancel()

    asyncio.run(run(site.watcher))
