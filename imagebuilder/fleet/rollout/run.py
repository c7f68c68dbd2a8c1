# SPDX-License-Identifier: Apache-2.0
"""Run a roll-out: observe, decide, write down, do; over and over until it has ended.

Whoever is killed at any moment leaves a journal from which this goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from imagebuilder.errors import Fault, ImagebuilderError
from imagebuilder.fleet.addresses import find_addresses
from imagebuilder.fleet.drain import Drainer
from imagebuilder.fleet.power.choose import choose_drivers
from imagebuilder.fleet.rollout.journal import obey, runner, save_rollout
from imagebuilder.fleet.rollout.machine import (
    advance,
    find_due,
    in_flight,
    out_of_window,
    restart_stages,
    shifted,
    wanted_pins,
    watched,
)
from imagebuilder.fleet.rollout.message import TellRollout, report_interruption, tell_nobody
from imagebuilder.fleet.rollout.observe import observe_nodes, reason_of
from imagebuilder.fleet.rollout.pins import pin_nodes
from imagebuilder.fleet.rollout.types import (
    JournalTime,
    LiveRollout,
    PowerCut,
    Rollout,
    RolloutStatus,
    Sight,
)
from imagebuilder.fleet.select import fold
from imagebuilder.fleet.ssh import run_on
from imagebuilder.fleet.verbs import BOOT_ID, REBOOT, Crew, cycle, refusals
from imagebuilder.nodes.evidence.boots import forget_tries
from imagebuilder.nodes.load import WatchedNodes
from imagebuilder.nodes.references import find_version
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.process import paste
from imagebuilder.publish.channel.move import promote
from imagebuilder.tree import STABLE, Tree
from imagebuilder.ui import Ui, format_age
from imagebuilder.window import parse_window

POLL = 2.0
SSH_SECONDS = 30.0
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
JUMP = 60.0  # seconds that a clock is not set by for its exactness alone
PATIENCE = 60.0  # seconds that a node has to end a boot before it is asked again


def utc_now() -> datetime:
    return datetime.now(UTC)


def steady_now() -> float:
    """Seconds by a clock that nobody sets, and that goes on while this host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def find_boot_id() -> str:
    """The boot of this host (random(4)) that steady_now() counts from."""
    return BOOT_ID_FILE.read_text().strip()


@dataclass
class RolloutRun:
    """A process that runs a roll-out: what it works with, and what it remembers of its own doing.

    `clock` says when a node entered a stage, when that is late and when its window is over, and
    `steady` how much time has passed of this host's `boot` even if the clock was set; `times` are
    both at the last turn.
    `reboots` is when each boot was asked to end, `problems` what became of that.  `tell` is called
    for each status that it comes into.
    """

    tree: Tree
    ui: Ui
    drainer: Drainer
    env: Mapping[str, str]
    poll: float = POLL
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], datetime] = utc_now
    steady: Callable[[], float] = steady_now
    boot: Callable[[], str] = find_boot_id
    times: tuple[datetime, float] | None = None
    reboots: dict[tuple[str, str], float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    pinned: Mapping[str, str] | None = None
    nodes: Nodes = field(default_factory=Nodes)  # as this turn found them
    faults: tuple[Fault, ...] = ()  # that nodes.yaml has
    unresumed: set[str] = field(default_factory=set)
    tell: TellRollout = tell_nobody
    told: RolloutStatus | None = None
    last: Rollout | None = None  # as the journal has it

    def __post_init__(self) -> None:
        self.file = WatchedNodes(self.tree)

    def go(self, rollout: Rollout) -> Rollout:
        """Go on until it has ended, or is paused with no node in between.

        The caller has the roll-out's lock.  Raises ImagebuilderError: the journal is right
        then, and receivers are told that it was interrupted.
        """
        self.last = rollout
        try:
            return self.go_on(rollout)
        except BaseException:
            process = runner(self.tree, rollout.profile)
            live = LiveRollout(self.last, runs=False, process=process)
            report_interruption(self.tree, live, self.tell)
            raise

    def go_on(self, rollout: Rollout) -> Rollout:
        while True:
            before = rollout
            rollout = obey(self.tree, rollout)
            if not self.find_nodes():
                self.wait(self.poll)
                continue
            rollout, now = self.follow_clock(rollout)
            if rollout.window and not parse_window(rollout.window).contains(now):
                rollout = self.note(rollout, out_of_window(rollout, now))
            self.pin(rollout)
            sights = self.observe(rollout)
            stable = find_version(self.tree, rollout.profile, STABLE)
            rollout, now = self.follow_clock(rollout)  # it may have been set meanwhile
            rollout = self.note(rollout, advance(rollout, sights, stable, now))
            self.pin(rollout)
            rollout = self.act(rollout, sights)
            if rollout.status is RolloutStatus.PROMOTING:
                rollout = self.promote(rollout)
            if rollout.settled and not find_due(rollout, {}).resume:
                return rollout
            if rollout == before:  # after a step the next one may be due at once
                self.wait(self.poll)

    def find_nodes(self) -> bool:
        """Read nodes.yaml; whether it has no faults.  While it has some, nothing goes on."""
        self.nodes, faults = self.file.load()
        if faults and faults != self.faults:
            self.ui.warn(f"waiting until nodes.yaml is valid: {faults[0]}")
        self.faults = faults
        return not faults

    def follow_clock(self, rollout: Rollout) -> tuple[Rollout, datetime]:
        """The time, and the roll-out in which no node is late because somebody set the clock."""
        now, steady = self.clock(), self.steady()
        before, self.times = self.times, (now, steady)
        if before is None and in_flight(rollout):  # another process ran it before
            written = rollout.written
            if written is None or written.boot != self.boot():
                what = "it is unknown how much time has passed: nodes get their whole time again"
                self.ui.note(what)
                return self.note(rollout, restart_stages(rollout, now)), now
            before = (datetime.fromisoformat(written.time), written.seconds)
        by = now - before[0] - timedelta(seconds=steady - before[1]) if before else timedelta()
        if abs(by.total_seconds()) < JUMP:
            return rollout, now
        where = "forward" if by > timedelta() else "back"
        self.ui.warn(f"the clock was set {where} by {format_age(abs(by))}: nodes get no less time")
        return self.note(rollout, shifted(rollout, by)), now

    def observe(self, rollout: Rollout) -> dict[str, Sight]:
        names = watched(rollout)
        if not names:
            return {}
        return observe_nodes(self.tree, rollout, self.nodes, names, self.drainer, self.problems)

    def note(self, before: Rollout, after: Rollout) -> Rollout:
        """Write a step down, with the time that it goes by, and tell of it."""
        if after != before:
            if self.times:
                now, steady = self.times[0].isoformat(), round(self.times[1], 3)
                after = replace(after, written=JournalTime(self.boot(), now, steady))
            save_rollout(self.tree, after)
            self.last = after
            for line in describe_steps(before, after):
                self.ui.note(line)
        if after.status is not self.told:
            self.told = after.status
            self.tell(LiveRollout(after, runs=True))
        return after

    def pin(self, rollout: Rollout) -> None:
        """Have nodes.yaml say what the journal does."""
        wanted = wanted_pins(rollout)
        if wanted != self.pinned:
            new = [name for name, version in wanted.items() if version == rollout.after]
            before = self.pinned or {}
            repinned = [name for name in new if before.get(name) != rollout.after]
            forget_tries(self.tree, repinned, rollout.release)
            pin_nodes(self.tree, rollout, wanted)
            self.pinned = wanted

    def promote(self, rollout: Rollout) -> Rollout:
        """Stable first: a node whose pin goes must not fall to the old release."""
        moved = promote(self.tree, str(rollout.release), self.ui, untested=rollout.terms.untested)
        self.ui.note(moved.render())
        done = replace(rollout, status=RolloutStatus.DONE)
        self.pin(done)
        return self.note(rollout, done)

    def act(self, rollout: Rollout, sights: Mapping[str, Sight]) -> Rollout:
        """Do what is due."""
        due = find_due(rollout, sights)
        self.reboot(due.reboot)
        if due.cut:
            self.cut(due.cut)
            rollout = self.note(rollout, mark(rollout, due.cut, cut=PowerCut.MADE))
        if due.resume:
            rollout = self.resume(rollout, due.resume)
        return rollout

    def resume(self, rollout: Rollout, names: Sequence[str]) -> Rollout:
        """Let work onto nodes again; what fails is tried again while others are to be updated."""
        try:
            self.drainer.resume(names, reason_of(rollout))
        except ImagebuilderError as error:
            if not watched(rollout):
                raise
            if self.unresumed != {*names}:
                self.ui.warn(f"could not resume {fold(names)}, trying again: {error}")
                self.unresumed = {*names}
            return rollout
        return self.note(rollout, mark(rollout, names, drained=False))

    def reboot(self, boots: Mapping[str, str]) -> None:
        """Ask each of these boots to end, those that were asked just now excepted."""
        now = time.monotonic()
        fresh = {
            name: boot
            for name, boot in boots.items()
            if now - self.reboots.get((name, boot), -PATIENCE) >= PATIENCE
        }
        if not fresh:
            return
        nodes = self.nodes_named(fresh)
        command = reboot_command(sorted(fresh.values()))
        said = run_on(self.tree, nodes, command, SSH_SECONDS)
        refused = refusals({one.node: one for one in said})
        for name, boot in fresh.items():
            self.reboots[name, boot] = now
            self.problems.pop(name, None)
            if name in refused:
                self.problems[name] = refused[name]

    def cut(self, names: Sequence[str]) -> None:
        """Cut the power of nodes and switch them on again; what fails is their problem."""
        nodes = self.nodes_named(names)
        places = find_addresses(self.tree, nodes)
        try:
            drivers = choose_drivers(nodes, places, self.env)
        except ImagebuilderError as error:
            self.problems |= dict.fromkeys(names, f"its power could not be cut: {error}")
            return
        crew = Crew(self.tree, tuple(nodes), drivers, self.ui.note)
        for name, outcome in cycle(crew, [node.name for node in nodes]).items():
            self.problems[name] = f"its power could not be cut: {outcome.words}"

    def nodes_named(self, names: Collection[str]) -> list[Node]:
        return [node for node in self.nodes.nodes if node.name in names]


def reboot_command(boots: Sequence[str]) -> list[str]:
    """A command that reboots a node if one of these boots runs: one that began since is left."""
    script = f"case $({paste(BOOT_ID)}) in {'|'.join(boots)}) exec {paste(REBOOT)} ;; esac"
    return ["sh", "-c", script]


def mark(rollout: Rollout, names: Collection[str], **changes: object) -> Rollout:
    """The roll-out with the same change of each of these nodes."""
    nodes = tuple(
        replace(node, **changes) if node.name in names else node  # type: ignore[arg-type]
        for node in rollout.nodes
    )
    return replace(rollout, nodes=nodes)


def describe_steps(before: Rollout, after: Rollout) -> list[str]:
    """A line for each stage that nodes entered, those that did the same together."""
    old = {node.name: (node.stage, node.why) for node in before.nodes}
    entered: dict[str, list[str]] = {}
    for node in after.nodes:
        if old[node.name] != (node.stage, node.why):
            words = f"{node.stage.value}: {node.why}" if node.why else node.stage.value
            entered.setdefault(words, []).append(node.name)
    lines = [f"{fold(names)}: {words}" for words, names in entered.items()]
    if before.status is not after.status:
        why = f": {after.why}" if after.why else ""
        lines.append(f"roll-out of {after.release}: {after.status.value}{why}")
    return lines
