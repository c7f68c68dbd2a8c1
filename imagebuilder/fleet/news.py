# SPDX-License-Identifier: Apache-2.0
"""Which changes of nodes are news, gathered and limited; and the message about them.

A node is reported when it is in another of the states of NodeNews than was reported last.  Pure:
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


class NodeNews(StrEnum):
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
    """A node as it was just seen.  Without `news` it is in between, such as booting."""

    name: str
    group: str
    profile: str
    news: NodeNews | None
    words: str


@dataclass(frozen=True)
class ReportedNode:
    """What was reported of a node last, and when in the last hour something was."""

    node: str
    news: NodeNews
    times: tuple[UtcTime, ...] = ()


@dataclass(frozen=True)
class NewsTerms:
    """`notify` of the site file: seconds to gather changes, how many of a node are reported in an
    hour, and for how many seconds a node is silent before that is news.
    """

    gather: float = 30.0
    per_hour: int = 4
    silent_after: float = 300.0


@dataclass(frozen=True)
class NodeChange:
    """A change to report; `suppressed` changes of this node before it were not."""

    sight: NodeSight
    before: NodeNews
    at: datetime
    suppressed: int

    @property
    def news(self) -> NodeNews:
        assert self.sight.news
        return self.sight.news

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "node": self.sight.name,
            "group": self.sight.group,
            "profile": self.sight.profile,
            "from": self.before.value,
            "to": self.news.value,
            "words": one_line(self.sight.words),
            "since": self.at.isoformat(timespec="seconds"),
            "suppressed": self.suppressed,
        }


@dataclass
class LiveNode:
    """A node since this process watches it: its state, since when, and its unreported changes."""

    news: NodeNews
    since: datetime
    changes: int = 0


@dataclass
class NodeTracker:
    """What was reported of nodes (`told`), and what is going on."""

    terms: NewsTerms
    told: dict[str, ReportedNode]
    lives: dict[str, LiveNode] = field(default_factory=dict)
    opened: datetime | None = None  # when the first of the changes that are gathered was seen
    window: float = 0.0
    last: datetime | None = None

    def baseline(self, sights: Iterable[NodeSight], now: datetime) -> None:
        """Take things as they are for known: nobody is told of the past."""
        self.told = {s.name: ReportedNode(s.name, s.news) for s in sights if s.news}
        self.lives = {name: LiveNode(one.news, now) for name, one in self.told.items()}

    def advance(self, sights: Sequence[NodeSight], now: datetime) -> list[NodeChange]:
        """What to report now; it counts as reported from here on."""
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
        if sight.news is None:
            return None
        live = self.lives.get(sight.name)
        if live is None or live.news is not sight.news:
            live = LiveNode(sight.news, now, live.changes + 1 if live else 0)
            self.lives[sight.name] = live
        # A node that is new begins well: it is news when it is not.
        told = self.told.get(sight.name, ReportedNode(sight.name, NodeNews.READY))
        age = (now - live.since).total_seconds()
        limited = len(recent(told, now)) >= self.terms.per_hour
        if sight.news is told.news:
            live.changes = live.changes if limited else 0
            return None
        if sight.news is NodeNews.SILENT and age < self.terms.silent_after:
            return None
        if limited:
            return None
        return NodeChange(sight, told.news, live.since, max(0, live.changes - 1))

    def report(self, change: NodeChange, now: datetime) -> None:
        name = change.sight.name
        before = self.told.get(name)
        times = (*(recent(before, now) if before else ()), now.isoformat(timespec="seconds"))
        self.told[name] = ReportedNode(name, change.news, times)
        self.lives[name] = replace(self.lives[name], changes=0)

    @property
    def reported(self) -> tuple[ReportedNode, ...]:
        """What has to be kept: who is not there was ready."""
        known = (self.told[name] for name in sorted(self.told))
        return tuple(one for one in known if one.times or one.news is not NodeNews.READY)


def recent(told: ReportedNode, now: datetime) -> tuple[str, ...]:
    """When in the last hour something was reported; times that are still to come do not count."""
    return tuple(t for t in told.times if timedelta(0) <= now - datetime.fromisoformat(t) < HOUR)


def make_message(changes: Sequence[NodeChange], receiver: MessageReceiver) -> Message | None:
    """The message about those changes that a receiver wants; None if there are none."""
    wanted = [
        change
        for change in changes
        if receiver.wants(change.news.kind)
        and (not receiver.groups or change.sight.group in receiver.groups)
    ]
    if not wanted:
        return None
    by_news = {news: found for news in NodeNews if (found := [c for c in wanted if c.news is news])}
    suppressed = sum(change.suppressed for change in wanted)
    body: dict[str, Json] = {
        "counts": {news.value: len(found) for news, found in by_news.items()},
        "changes": [change.as_json() for change in wanted[:LISTED]],
        "omitted": max(0, len(wanted) - LISTED),
        "suppressed": suppressed,
    }
    text = "; ".join(describe(news, found) for news, found in by_news.items())
    if suppressed:
        text += f" ({format_count(suppressed, 'earlier change')} not reported)"
    kinds = tuple(news.kind for news in by_news)
    details = "\n".join(render_lines(by_news, suppressed)) + "\n"
    return Message(Topic.NODES, kinds, one_line(text), details, body)


def describe(news: NodeNews, changes: Sequence[NodeChange]) -> str:
    """`3 nodes failed: node[1-3]`, `1 node is ready again: node7`."""
    words = {
        NodeNews.FAILED: ("failed to boot", "failed to boot"),
        NodeNews.ILL: ("is ill", "are ill"),
        NodeNews.SILENT: ("is silent", "are silent"),
        NodeNews.FELL_BACK: ("fell back to an older release", "fell back to an older release"),
        NodeNews.READY: ("is ready again", "are ready again"),
    }[news]
    names = one_line(fold(change.sight.name for change in changes), FOLDED)
    why = f" ({one_line(changes[0].sight.words)})" if len(changes) == 1 else ""
    count = format_count(len(changes), "node")
    return f"{count} {words[len(changes) > 1]}: {names}{why}"


def render_lines(
    by_news: Mapping[NodeNews, Sequence[NodeChange]], suppressed: int
) -> Iterator[str]:
    """The text of a mail."""
    for news, changes in by_news.items():
        yield describe(news, changes).partition(":")[0] + ":"
        for change in changes[:LINES]:
            sight = change.sight
            more = f" ({change.suppressed} earlier not reported)" if change.suppressed else ""
            yield f"  {sight.name}: {one_line(sight.words)}; was {change.before.value}{more}"
        if len(changes) > LINES:
            yield f"  and {len(changes) - LINES} more: {fold(c.sight.name for c in changes)}"
        yield ""
    if suppressed:
        yield f"{format_count(suppressed, 'earlier change')} of these nodes not reported"
    yield "imagebuilder status shows how nodes are now, imagebuilder explain NODE why"
