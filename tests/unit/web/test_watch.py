# SPDX-License-Identifier: Apache-2.0
"""What changed is found and told; what only became older is not."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta

from imagebuilder.tree import ReleaseName
from imagebuilder.web.site import WebSite
from imagebuilder.web.watch import Watcher, find_changes
from tests.fleet_world import NEW, OLD, FleetWorld
from tests.unit.nodes_world import move_channel

PATIENCE = 60.0


def news(site: WebSite) -> list[str]:
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
    assert news(site) == []
    assert site.watcher.maker.stamp() == before


def test_a_report_is_news(world: FleetWorld, site: WebSite) -> None:
    before = site.watcher.maker.stamp()
    world.report(3, "root", NEW, timedelta(seconds=1))
    assert site.watcher.maker.stamp() != before
    assert news(site) == ["node node003", "releases"]


def test_a_verdict_is_news_and_its_repetition_is_not(world: FleetWorld, site: WebSite) -> None:
    day = timedelta(days=1)
    world.report(3, "switch-root", OLD, day, "degraded")
    assert "node node003" in news(site)
    time.sleep(1.1)  # a later report of the same
    world.report(3, "switch-root", OLD, day, "degraded")
    assert "node node003" not in news(site)


def test_a_channel_that_moves_is_news_of_its_nodes(world: FleetWorld, site: WebSite) -> None:
    before = site.watcher.maker.stamp()
    move_channel(world.tree, "rx7600xt", "stable", NEW)
    assert site.watcher.maker.stamp() != before
    found = news(site)
    assert found.count("releases") == 1
    assert len(found) == 71


def test_a_node_that_is_removed_is_news(world: FleetWorld, site: WebSite) -> None:
    lines = world.tree.nodes_file.read_text().splitlines()
    world.tree.nodes_file.write_text("\n".join(lines[:-1]) + "\n")
    assert "node-removed node079" in news(site)


def test_a_release_that_goes_is_news(world: FleetWorld, site: WebSite) -> None:
    folder = world.tree.release(ReleaseName("generic", NEW))
    folder.rename(folder.with_name("other"))
    assert "releases" in news(site)


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
