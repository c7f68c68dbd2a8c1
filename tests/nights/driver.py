# SPDX-License-Identifier: Apache-2.0
"""Night after night: change the archive, let faults come, run the night, ask the oracle.

A night is a process; one that is killed is started once more, as its unit does (Restart=).
Whatever a night leaves, the next one finds: nothing is mended in between.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.aptrepo import DAY, WITHOUT_PROXY
from tests.integration.started import Started, find_descendants, start
from tests.nights import oracle
from tests.nights.plans import Fault, Kind, Moment, NightPlan
from tests.nights.world import KEEP, PROFILES, World
from tests.workshop import CHECKOUT

POLL_S, IDLE_S = 0.002, 0.02
MOST_S = 600.0  # for one night
RESTART_S = 60  # as RestartSec= of the unit


@dataclass
class Row:
    """What came of a night.

    `status` are the exit statuses of its processes, `ways` are how it ended for each profile;
    `fresh` are the profiles whose stable has the newest of everything, `waits` the seconds it
    waited by its own clock, `published` the bytes that came into the tree; `hit` are the faults
    that really met it, `wrong` what the oracle says.
    """

    plan: NightPlan
    status: list[int] = field(default_factory=list)
    ways: dict[str, str] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    hit: list[Kind] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    published: int = 0
    seconds: float = 0.0
    said: str = ""


class Driver:
    """The builder's nights in a world."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.begun = 0
        self.mounts = read_mounts()

    def run(self, plan: NightPlan) -> Row:
        """One night, with the restart that its unit would make."""
        row = Row(plan)
        world = self.world
        broken = any(fault.kind is Kind.BROKEN for fault in plan.faults)
        changed = [world.change(change, broken=broken) for change in plan.changes]
        world.day += DAY
        if changed or plan.again:
            world.publish()
        for fault in plan.faults:
            world.begin(fault, changed)
        before = {profile: self.stable_packages(profile) for profile in PROFILES}
        releases = set(self.releases())
        clock = Clock(world, plan.faults)
        started = time.monotonic()
        while not row.status or (row.status == [-signal.SIGKILL]):
            self.begun += 1
            self.watch(row, clock, first=not row.status)
            self.settle(row)
            row.wrong += oracle.examine(world.places.tree, self.stable_ones())
            if row.status[-1] == -signal.SIGKILL:
                clock.pass_time(RESTART_S)
        row.seconds = time.monotonic() - started
        row.hit = [fault.kind for fault in plan.faults if self.has_met(row, fault)]
        self.look(row)
        made = sorted(set(self.releases()) - releases)
        row.wrong += oracle.examine_told(world.places.nights, before, world.places.tree, made)
        clock.pass_time(DAY - clock.now)
        return row

    def watch(self, row: Row, clock: Clock, *, first: bool) -> None:
        """Run one process to its end; faults with a moment come when it is there."""
        world = self.world
        place = self.folder / f"{row.plan.number:02d}-{len(row.status) + 1}"
        argv = [sys.executable, "-m", "tests.nights.night", os.fspath(world.places.top)]
        env = {**world.places.env(), **WITHOUT_PROXY, "PYTHONPATH": os.fspath(CHECKOUT)}
        night = start(argv, env, place)
        triggers = [t for fault in clock.left if first and not (t := Trigger(world, fault)).done]
        begun = time.monotonic()
        while (status := night.find_end()) is None:
            assert time.monotonic() - begun < MOST_S, f"night {row.plan.number} does not end"
            for trigger in triggers:
                trigger.look(night)
            if world.places.wait.exists():
                self.wait(row, clock)
            time.sleep(POLL_S if triggers else IDLE_S)
        row.status.append(status)
        row.said += night.stderr

    def has_met(self, row: Row, fault: Fault) -> bool:
        """Whether a fault has really come to a night: what it said, or how it ended."""
        if fault.kind is Kind.KILLED:
            return -signal.SIGKILL in row.status
        return fault.kind is Kind.CLOCK or bool(re.search(SAID[fault.kind], row.said))

    def wait(self, row: Row, clock: Clock) -> None:
        """The night waits: let that time pass."""
        seconds = float(self.world.places.wait.read_text())
        row.waits.append(seconds)
        clock.pass_time(seconds)
        self.world.places.wait.unlink()

    def settle(self, row: Row) -> None:
        """Nothing of a process that ended lives on, and nothing is mounted."""
        end = time.monotonic() + 5
        while (left := find_descendants()) and time.monotonic() < end:
            time.sleep(POLL_S)
        row.wrong += [f"process {pid} was left: {line}" for pid, line in left.items()]
        if read_mounts() != self.mounts:
            row.wrong.append("something is mounted that was not")

    def stable_ones(self) -> list[str]:
        """The profiles that have become stable at some time: they must be for ever."""
        tops = self.world.places.tree / "channels"
        return [name for name in PROFILES if (tops / name).is_dir()] if tops.is_dir() else []

    def stable_packages(self, profile: str) -> dict[str, str]:
        return oracle.stable_packages(self.world.places.tree, profile)

    def releases(self) -> Iterator[str]:
        """The versions of all releases that were ever published."""
        journal = self.world.places.tree / "journal.jsonl"
        for line in journal.read_text().splitlines() if journal.exists() else ():
            event = json.loads(line)
            if event["event"] == "publish":
                yield event["version"]

    def look(self, row: Row) -> None:
        """What came of a night that is over."""
        places = self.world.places
        row.wrong += oracle.examine(places.tree, list(PROFILES))
        row.wrong += oracle.examine_tidy(places.tree, places.state)
        row.wrong += oracle.examine_moves(places.tree)
        row.wrong += oracle.examine_retention(places.tree, KEEP)
        row.wrong += oracle.examine_history(places.nights, row.plan.number, self.begun)
        row.fresh = [
            profile
            for profile in PROFILES
            if oracle.stable_packages(places.tree, profile) == self.world.upstream_of(profile)
        ]
        for done in oracle.newest_night(places.nights):
            row.ways[done["profile"]] = done["ending"]
            row.published += done["published"]
        row.wrong += check_quiet(row)


def read_mounts() -> str:
    """What is mounted; how large the disk is at the moment does not count."""
    return re.sub(r"\bsize=\w+", "", Path("/proc/self/mountinfo").read_text())


# What a night says that has met a fault.
SAID = {
    Kind.DOWN: "mirror is not reachable",
    Kind.FAILING: "503  Service Unavailable",
    Kind.SILENT: "mirror is not reachable",
    Kind.TRUNCATED: "the mirror closed the connection while sending",
    Kind.GARBLED: "the mirror sent something else",
    Kind.EXPIRED: "Release of tiny expired",
    Kind.FULL: "the disk is full|[Nn]o space left|File too large",
    Kind.BOOT: "repeating the boot test",
    Kind.BROKEN: "mount.nfs4: access denied",
}


class Clock:
    """The time since a night began, in seconds; faults are lifted as it passes."""

    def __init__(self, world: World, faults: Sequence[Fault]) -> None:
        self.world = world
        self.now = 0.0
        self.left = list(faults)

    def pass_time(self, seconds: float) -> None:
        """So much later."""
        self.now += seconds
        self.world.pass_time(seconds)
        for fault in [fault for fault in self.left if fault.minutes * 60 <= self.now]:
            self.left.remove(fault)
            self.world.end(fault)


class Trigger:
    """A fault that comes when the night has come to a moment."""

    def __init__(self, world: World, fault: Fault) -> None:
        self.world = world
        self.fault = fault
        self.at: float | None = None
        self.done = fault.kind not in (Kind.KILLED, Kind.FULL) or (
            fault.kind is Kind.FULL and fault.moment is Moment.START
        )
        self.journal = self.count_promotions()

    def look(self, night: Started) -> None:
        """Let it come if it is time."""
        if self.done:
            return
        if self.at is None and self.is_there():
            self.at = time.monotonic() + self.fault.delay
        if self.at is None or time.monotonic() < self.at:
            return
        self.done = True
        if self.fault.kind is Kind.KILLED:
            night.send(signal.SIGKILL)
        else:
            self.world.fill(self.fault)

    def is_there(self) -> bool:
        """Whether the night has come to the moment."""
        places = self.world.places
        if self.fault.moment is Moment.PROMOTE:
            return self.count_promotions() > self.journal
        if self.fault.moment is Moment.HALF:
            return any(self.half())
        patterns = {
            Moment.LOCK: (places.state, "locks/nightly"),
            Moment.BUILD: (places.state, "work/*"),
            Moment.PUBLISH: (places.tree, "work/publish-*"),
        }
        top, pattern = patterns[self.fault.moment]
        return any(top.glob(pattern))

    def half(self) -> Iterator[Path]:
        """Roots that have their place already, and no release yet."""
        tree = self.world.places.tree
        for root in (tree / "roots").glob("*/*"):
            if not (tree / "http/releases" / root.relative_to(tree / "roots")).exists():
                yield root

    def count_promotions(self) -> int:
        """How many moves of `stable` were begun."""
        journal = self.world.places.tree / "journal.jsonl"
        return journal.read_text().count('"promote"') if journal.exists() else 0


def check_quiet(row: Row) -> Iterator[str]:
    """A night in which nothing changed and nothing went wrong says so and does nothing."""
    if row.plan.changes or row.plan.faults:
        return
    if row.published:
        yield f"nothing changed, and {row.published} bytes were published"
    if set(row.ways.values()) != {"unchanged"}:
        yield f"nothing changed, and the night ended {row.ways}"
