# SPDX-License-Identifier: Apache-2.0
"""Which changes of nodes are reported when, and in which words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from imagebuilder.notify.types import Message, MessageReceiver
from imagebuilder.recipe.model_notify import KINDS
from imagebuilder.web.node_changes import (
    LISTED,
    NodeChange,
    NodeSight,
    NodeTracker,
    ReportedState,
    ReportTerms,
    make_message,
)

BEGUN = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)
READY, FAILED, SILENT = ReportedState.READY, ReportedState.FAILED, ReportedState.SILENT
USUAL = ReportTerms()
STEP = 10.0  # seconds between two looks


def sights(state: ReportedState | None, names: Iterable[str] = ("n1",)) -> list[NodeSight]:
    words = {FAILED: "its boot failed 3 s ago", SILENT: "does not answer to ssh"}
    return [
        NodeSight(n, "rack1", "demo", state, words.get(state, "") if state else "") for n in names
    ]


class World:
    """A tracker and a clock."""

    def __init__(self, terms: ReportTerms = USUAL, *, names: Iterable[str] = ("n1",)) -> None:
        self.tracker = NodeTracker(terms, {})
        self.names = [*names]
        self.now = BEGUN
        self.messages: list[list[NodeChange]] = []
        self.tracker.baseline(sights(READY, self.names), self.now)

    def look(self, seen: list[NodeSight]) -> None:
        if changes := self.tracker.advance(seen, self.now):
            self.messages.append(changes)
        self.now += timedelta(seconds=STEP)

    def be(self, state: ReportedState | None, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.look(sights(state, self.names))

    def restart(self) -> None:
        """Another process, which knows what the file has."""
        known = {one.node: one for one in self.tracker.reported}
        self.tracker = NodeTracker(self.tracker.terms, known)

    @property
    def told(self) -> list[list[str]]:
        return [[change.state.value for change in changes] for changes in self.messages]


def to(*kinds: str, groups: Iterable[str] = ()) -> MessageReceiver:
    return MessageReceiver("r", "r", kinds or KINDS, [*groups], lambda _: ([], b""))


def made(changes: list[NodeChange], receiver: MessageReceiver) -> Message:
    found = make_message(changes, receiver)
    assert found
    return found


def test_a_failure_and_a_recovery_are_told_once_each() -> None:
    world = World()
    world.be(READY, 60)
    world.be(FAILED, 600)
    world.be(None, 60)  # boots
    world.be(READY, 600)
    assert world.told == [["failed"], ["ready"]]
    first = world.messages[0][0].as_json()
    assert (first["from"], first["to"], first["words"]) == (
        "ready", "failed", "its boot failed 3 s ago",
    )  # fmt: skip


def test_a_reboot_is_not_news() -> None:
    world = World()
    world.be(SILENT, 120)
    world.be(None, 120)
    world.be(READY, 600)
    world.be(FAILED, 60)
    assert world.told == [["failed"]]
    assert world.messages[0][0].suppressed == 0, "the reboot before it was not left out"


def test_silence_is_news_once_it_has_lasted() -> None:
    world = World(ReportTerms(gather=0, silent_after=300))
    world.be(SILENT, 290)
    assert world.told == []
    world.be(SILENT, 60)
    assert world.told == [["silent"]]


def test_800_nodes_without_power_are_one_message() -> None:
    names = [f"node{n:03}" for n in range(800)]
    world = World(names=names)
    world.be(SILENT, 900)
    (changes,) = world.messages
    message = made(changes, to())
    assert message.text == "800 nodes are silent: node[000-799]"
    body = dict(message.body)
    assert body["counts"] == {"silent": 800}
    assert body["omitted"] == 800 - LISTED
    assert len(json.dumps(message.as_json())) < 60_000
    assert len(message.details.splitlines()) < 60


def test_changes_within_the_window_are_gathered() -> None:
    world = World(ReportTerms(gather=30), names=["a", "b", "c"])
    world.look([*sights(FAILED, "a"), *sights(READY, "bc")])
    world.look([*sights(FAILED, "ab"), *sights(READY, "c")])
    for _ in range(5):
        world.look(sights(FAILED, "abc"))
    assert world.told == [["failed"] * 3]


def test_messages_become_rarer_while_changes_keep_coming() -> None:
    names = [f"n{number}" for number in range(400)]
    world = World(ReportTerms(gather=30), names=names)
    for broken in range(360):  # one more node every ten seconds, for an hour
        world.look([*sights(FAILED, names[:broken]), *sights(READY, names[broken:])])
    assert 5 <= len(world.messages) <= 12
    assert sum(map(len, world.messages)) > 290
    world.be(READY, 1200)
    world.messages.clear()
    world.be(READY, 3600)
    world.be(FAILED, 60)
    assert len(world.messages) == 1, "afterwards they come at once again"


def test_a_node_that_flaps_is_limited_and_the_rest_is_counted() -> None:
    world = World(ReportTerms(gather=0, per_hour=4))
    for _ in range(30):  # an hour
        world.be(FAILED, 60)
        world.be(READY, 60)
    assert world.told == [["failed"], ["ready"]] * 2
    world.be(FAILED, 600)
    assert len(world.messages) == 5
    change = world.messages[-1][0]
    assert 50 < change.suppressed < 60
    message = made([change], to())
    assert message.text.endswith(f"({change.suppressed} earlier changes not reported)")
    assert dict(message.body)["suppressed"] == change.suppressed


def test_one_that_flaps_does_not_hold_up_the_others() -> None:
    world = World(ReportTerms(gather=0, per_hour=2), names=["a", "b"])
    for _ in range(10):
        for state in (FAILED, READY):
            world.look([*sights(state, "a"), *sights(READY, "b")])
    before = len(world.messages)
    world.look([*sights(READY, "a"), *sights(FAILED, "b")])
    assert [c.sight.name for c in world.messages[before]] == ["b"]


def test_a_restart_tells_nothing_twice_and_loses_nothing() -> None:
    world = World()
    world.be(FAILED, 60)
    world.restart()
    world.be(FAILED, 600)
    assert world.told == [["failed"]]
    world.restart()  # and while nobody looked, it became ready
    world.be(READY, 60)
    assert world.told == [["failed"], ["ready"]]
    world.restart()
    world.be(READY, 600)
    assert len(world.messages) == 2


def test_a_restart_does_not_lift_the_limit() -> None:
    world = World(ReportTerms(gather=0, per_hour=2))
    for _ in range(10):
        world.be(FAILED, 60)
        world.restart()
        world.be(READY, 60)
    assert len(world.messages) == 2


def test_a_new_node_is_news_when_it_fails_and_a_removed_one_is_forgotten() -> None:
    world = World()
    world.look(sights(READY, ["n1", "new"]))
    for _ in range(5):
        world.look([*sights(READY), *sights(FAILED, ["new"])])
    assert [c.sight.name for c in world.messages[0]] == ["new"]
    world.look(sights(READY))
    assert world.tracker.reported == ()


def test_a_clock_that_is_set_back_mutes_nobody() -> None:
    world = World(ReportTerms(gather=0, per_hour=1))
    world.be(FAILED, 60)
    world.now -= timedelta(days=2)
    world.be(READY, 60)
    assert world.told == [["failed"], ["ready"]]


def test_receivers_get_what_they_want() -> None:
    world = World(ReportTerms(gather=0), names=["a", "b"])
    world.look([*sights(FAILED, "a"), *sights(SILENT, "b")])
    (changes,) = world.messages
    other = [
        *changes,
        NodeChange(NodeSight("c", "rack2", "demo", ReportedState.ILL, "x"), READY, BEGUN, 0),
    ]
    assert made(other, to()).kinds == ("node-failed", "node-ill")
    assert made(other, to("node-ill")).text == "1 node is ill: c (x)"
    assert make_message(other, to("node-silent")) is None
    assert make_message(other, to("node-ill", groups=["rack1"])) is None
    assert made(other, to(groups=["rack1"])).kinds == ("node-failed",)


def test_words_of_strangers_stay_on_their_line() -> None:
    evil = "x\r\nBcc: evil@example.org\x1b[31m\u202e"
    change = NodeChange(NodeSight("n1", "", "demo", FAILED, evil), READY, BEGUN, 0)
    message = made([change], to())
    assert "\n" not in message.text
    assert message.text.isprintable()
    assert "\nBcc" not in message.details
    assert all(line.isprintable() for line in message.details.splitlines())
