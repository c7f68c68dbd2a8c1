# SPDX-License-Identifier: Apache-2.0
"""Which changes of nodes are reported, gathered and limited; and the message about them.

A node is reported when its ReportedState is not the one that was reported last.  Pure:
what was reported is a value that the caller keeps (ReportedNode), so that a restart reports nothing
twice and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from imagebuilder.decode import UtcTime
from imagebuilder.digest import Json
from imagebuilder.fleet.select import fold
from imagebuilder.notify.types import Message, MessageReceiver, Topic, one_line
from imagebuilder.ui import format_count

LISTED = 200  # changes in the JSON of a message
LINES = 40  # and in a mail
FOLDED = 120  # characters of the names in the text
HOUR = timedelta(hours=1)
MOST_GATHER = 600.0


class ReportedState(StrEnum):
    """The states of a node that are reported; a kind of notification is `node-` and this."""

    FAILED = "failed"
    ILL = "ill"
    SILENT = "silent"
    FELL_BACK = "fell-back"
    READY = "ready"

    @property
    def kind(self) -> str:
        return f"node-{self.value}"


@dataclass(frozen=True)
class NodeSight:
    """A node as it was just seen.  Without a `state` it is in between, such as booting."""

    name: str
    group: str
    profile: str
    state: ReportedState | None
    words: str


@dataclass(frozen=True)
class ReportedNode:
    """What was reported of a node last, and when in the last hour something was."""

    node: str
    state: ReportedState
    times: tuple[UtcTime, ...] = ()


@dataclass(frozen=True)
class ReportTerms:
    """`notify` of the site file: seconds to gather changes, how many of a node are reported in an
    hour, and for how many seconds a node is silent before that is reported.
    """

    gather: float = 30.0
    per_hour: int = 4
    silent_after: float = 300.0


@dataclass(frozen=True)
class NodeChange:
    """A change to report; `suppressed` changes of this node before it were not."""

    sight: NodeSight
    before: ReportedState
    at: datetime
    suppressed: int

    @property
    def state(self) -> ReportedState:
        assert self.sight.state
        return self.sight.state

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "node": self.sight.name,
            "group": self.sight.group,
            "profile": self.sight.profile,
            "from": self.before.value,
            "to": self.state.value,
            "words": one_line(self.sight.words),
            "since": self.at.isoformat(timespec="seconds"),
            "suppressed": self.suppressed,
        }


@dataclass
class LiveNode:
    """A node since this process watches it: its state, since when, and its unreported changes."""

    state: ReportedState
    since: datetime
    changes: int = 0


@dataclass
class NodeTracker:
    """What was reported of nodes (`told`), and what is going on.

    `limited` are changes of the last advance() that `per_hour` keeps from being reported now.
    """

    terms: ReportTerms
    told: dict[str, ReportedNode]
    lives: dict[str, LiveNode] = field(default_factory=dict)
    opened: datetime | None = None  # when the first of the changes that are gathered was seen
    window: float = 0.0
    last: datetime | None = None
    limited: list[NodeSight] = field(default_factory=list)

    def baseline(self, sights: Iterable[NodeSight], now: datetime) -> None:
        """Take things as they are for known: nobody is told of the past."""
        self.told = {s.name: ReportedNode(s.name, s.state) for s in sights if s.state}
        self.lives = {name: LiveNode(one.state, now) for name, one in self.told.items()}

    def advance(self, sights: Sequence[NodeSight], now: datetime) -> list[NodeChange]:
        """What to report now; it counts as reported from here on."""
        self.limited = []
        names = {sight.name for sight in sights}
        self.told = {name: one for name, one in self.told.items() if name in names}
        self.lives = {name: one for name, one in self.lives.items() if name in names}
        due = [change for sight in sights if (change := self.find_change(sight, now))]
        if not due:
            self.opened = None
            return []
        if self.opened is None:
            # While changes keep coming, messages become rarer.
            busy = self.last and (now - self.last).total_seconds() < 2 * self.window
            most = max(MOST_GATHER, self.terms.gather)
            self.window = min(2 * self.window, most) if busy else self.terms.gather
            self.opened = now
        if (now - self.opened).total_seconds() < self.window:
            return []
        self.opened, self.last = None, now
        for change in due:
            self.report(change, now)
        return due

    def find_change(self, sight: NodeSight, now: datetime) -> NodeChange | None:
        """What is to be said of a node, if that may be said now."""
        if sight.state is None:
            return None
        before = self.lives.get(sight.name)
        live = before
        if live is None or live.state is not sight.state:
            live = LiveNode(sight.state, now, live.changes + 1 if live else 0)
            self.lives[sight.name] = live
        # A node that is new begins well: it is reported when it is not.
        told = self.told.get(sight.name, ReportedNode(sight.name, ReportedState.READY))
        age = (now - live.since).total_seconds()
        limited = len(recent(told, now)) >= self.terms.per_hour
        if limited and before is not None and before is not live:
            self.limited.append(sight)
        if sight.state is told.state:
            live.changes = live.changes if limited else 0
            return None
        if sight.state is ReportedState.SILENT and age < self.terms.silent_after:
            return None
        if limited:
            return None
        return NodeChange(sight, told.state, live.since, max(0, live.changes - 1))

    def report(self, change: NodeChange, now: datetime) -> None:
        name = change.sight.name
        before = self.told.get(name)
        times = (*(recent(before, now) if before else ()), now.isoformat(timespec="seconds"))
        self.told[name] = ReportedNode(name, change.state, times)
        self.lives[name] = replace(self.lives[name], changes=0)

    @property
    def reported(self) -> tuple[ReportedNode, ...]:
        """What has to be kept: who is not there was ready."""
        known = (self.told[name] for name in sorted(self.told))
        return tuple(one for one in known if one.times or one.state is not ReportedState.READY)


def recent(told: ReportedNode, now: datetime) -> tuple[str, ...]:
    """When in the last hour something was reported; times that are still to come do not count."""
    return tuple(t for t in told.times if timedelta(0) <= now - datetime.fromisoformat(t) < HOUR)


def concerns(sight: NodeSight, receiver: MessageReceiver) -> bool:
    """Whether a receiver wants to know of a node in this state."""
    if sight.state is None or not receiver.wants(sight.state.kind):
        return False
    return not receiver.groups or sight.group in receiver.groups


def make_message(changes: Sequence[NodeChange], receiver: MessageReceiver) -> Message | None:
    """The message about those changes that a receiver wants; None if there are none."""
    wanted = [change for change in changes if concerns(change.sight, receiver)]
    if not wanted:
        return None
    by_state = {
        state: found
        for state in ReportedState
        if (found := [c for c in wanted if c.state is state])
    }
    suppressed = sum(change.suppressed for change in wanted)
    body: dict[str, Json] = {
        "counts": {state.value: len(found) for state, found in by_state.items()},
        "changes": [change.as_json() for change in wanted[:LISTED]],
        "omitted": max(0, len(wanted) - LISTED),
        "suppressed": suppressed,
    }
    text = "; ".join(describe(state, found) for state, found in by_state.items())
    if suppressed:
        text += f" ({format_count(suppressed, 'earlier change')} not reported)"
    kinds = tuple(state.kind for state in by_state)
    details = "\n".join(render_lines(by_state, suppressed)) + "\n"
    return Message(Topic.NODES, kinds, one_line(text), details, body)


def describe(state: ReportedState, changes: Sequence[NodeChange]) -> str:
    """`3 nodes failed: node[1-3]`, `1 node is ready again: node7`."""
    words = {
        ReportedState.FAILED: ("failed to boot", "failed to boot"),
        ReportedState.ILL: ("is ill", "are ill"),
        ReportedState.SILENT: ("is silent", "are silent"),
        ReportedState.FELL_BACK: ("fell back to an older release", "fell back to an older release"),
        ReportedState.READY: ("is ready again", "are ready again"),
    }[state]
    names = one_line(fold(change.sight.name for change in changes), FOLDED)
    why = f" ({one_line(changes[0].sight.words)})" if len(changes) == 1 else ""
    count = format_count(len(changes), "node")
    return f"{count} {words[len(changes) > 1]}: {names}{why}"


def render_lines(
    by_state: Mapping[ReportedState, Sequence[NodeChange]], suppressed: int
) -> Iterator[str]:
    for state, changes in by_state.items():
        yield describe(state, changes).partition(":")[0] + ":"
        for change in changes[:LINES]:
            sight = change.sight
            more = f" ({change.suppressed} earlier not reported)" if change.suppressed else ""
            yield f"  {sight.name}: {one_line(sight.words)}; was {change.before.value}{more}"
        if len(changes) > LINES:
            yield f"  and {len(changes) - LINES} more: {fold(c.sight.name for c in changes)}"
        yield ""
    if suppressed:
        yield f"{format_count(suppressed, 'earlier change')} of these nodes not reported"
    yield "run imagebuilder status to see how nodes are now, imagebuilder explain NODE to see why"
