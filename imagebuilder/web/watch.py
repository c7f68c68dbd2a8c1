# SPDX-License-Identifier: Apache-2.0
"""Keeps the snapshot fresh, and says what changed from one to the next."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.nodes.load import Stamp
from imagebuilder.web.notify import FleetReporter
from imagebuilder.web.snapshot import SnapshotMaker, WebSnapshot
from imagebuilder.web.stream import Broker

EVERY = 0.2  # seconds between two checks whether something changed
AGING = 10.0  # seconds after which conditions are derived again, for they depend on ages
LOG = logging.getLogger("imagebuilder.web")


@dataclass(frozen=True)
class SnapshotChange:
    """A change to tell: an event's name and data."""

    name: str
    data: Json


def find_changes(old: WebSnapshot, new: WebSnapshot) -> Iterator[SnapshotChange]:
    """What is different, but for ages."""
    for row in new.rows:
        before = old.by_name.get(row.name)
        if before is None or before.essence != row.essence:
            yield SnapshotChange("node", row.as_json())
    for name in old.by_name.keys() - new.by_name.keys():
        yield SnapshotChange("node-removed", {"node": name})
    if old.releases != new.releases:
        yield SnapshotChange("releases", {})
    before_of = {live.rollout.profile: live for live in old.rollouts}
    for live in new.rollouts:
        if before_of.get(live.rollout.profile) != live:
            yield SnapshotChange("rollout", live.as_json())
    if old.machines != new.machines:
        yield SnapshotChange("machines", {})
    if old.nightly != new.nightly:
        yield SnapshotChange("nightly", {})
    if old.faults != new.faults:
        faults: list[Json] = [str(fault) for fault in new.faults]
        yield SnapshotChange("faults", {"faults": faults})


class Watcher:
    """Owns the newest snapshot.  Everything that reads files or asks nodes runs in a thread."""

    def __init__(
        self,
        maker: SnapshotMaker,
        broker: Broker,
        *,
        ask_every: float,
        reporter: FleetReporter | None = None,
    ) -> None:
        self.maker, self.broker = maker, broker
        self.ask_every, self.reporter = ask_every, reporter
        self.snapshot = maker.take()
        self.took = 0.0
        self._stamp: Stamp = ()
        self._alone = asyncio.Lock()  # of two snapshots at once, the older could be ready last

    async def refresh(self) -> None:
        """Take a snapshot and publish what changed."""
        async with self._alone:
            begun = time.monotonic()
            stamp = await asyncio.to_thread(self.maker.stamp)
            new = await asyncio.to_thread(self.maker.take)
            self._stamp = stamp  # what changed in between is found the next time
            self.took = time.monotonic() - begun
            old, self.snapshot = self.snapshot, new
            for item in find_changes(old, new):
                self.broker.publish(item.name, item.data)
        if self.reporter:
            await asyncio.to_thread(self.reporter.update, new)

    async def watch(self) -> None:
        """Until it is cancelled."""
        last = 0.0
        while True:
            stamp = await asyncio.to_thread(self.maker.stamp)
            if stamp != self._stamp or time.monotonic() - last > AGING:
                await self.refresh()
                last = time.monotonic()
            await asyncio.sleep(max(EVERY, self.took))  # at most half of a processor

    async def ask(self) -> None:
        """Ask the ssh servers of the nodes again and again, until it is cancelled."""
        while True:
            await asyncio.to_thread(self.maker.ask_nodes)
            await self.refresh()
            await asyncio.sleep(self.ask_every)

    async def run(self) -> None:
        """Watch until it is cancelled; a failure is noted, and tried again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(forever(self.watch))
            if self.ask_every:
                group.create_task(forever(self.ask))


async def forever(work: Callable[[], Awaitable[None]]) -> None:
    """A full disk, a file in the making or a bug must not end what keeps pages fresh."""
    while True:
        try:
            await work()
        except Exception:
            LOG.exception("could not look at the tree; trying again")
            await asyncio.sleep(1.0)
