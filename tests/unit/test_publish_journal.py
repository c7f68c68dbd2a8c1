# SPDX-License-Identifier: Apache-2.0
"""The journal: what it tells of a channel's past, also when it was cut short or lags."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.publish.journal import (
    PROMOTE,
    PUBLISH,
    ROLLBACK,
    SET,
    TAIL,
    Event,
    append,
    find_history,
    find_person,
    read_tail,
)
from imagebuilder.tree import Tree, make_tree

STABLE = "stable"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


def move(event: str, version: str, previous: str, channel: str = STABLE) -> Event:
    return Event(event, "demo", version, channel, previous)


UP = (move(PROMOTE, "1", ""), move(PROMOTE, "2", "1"), move(PROMOTE, "3", "2"))
HISTORIES = {
    "nothing": ((), "", []),
    "a link made by hand": ((), "1", ["1"]),
    "forward": (UP, "3", ["1", "2", "3"]),
    "back": ((*UP, move(ROLLBACK, "2", "3")), "2", ["1", "2"]),
    "back twice": ((*UP, move(ROLLBACK, "2", "3"), move(ROLLBACK, "1", "2")), "1", ["1"]),
    "back over one that is gone": ((*UP, move(ROLLBACK, "1", "3")), "1", ["1"]),
    "forward again": (
        (*UP, move(ROLLBACK, "2", "3"), move(PROMOTE, "4", "2")), "4", ["1", "2", "4"],
    ),
    "to one that never was": ((*UP, move(SET, "9", "3")), "9", ["1", "2", "3", "9"]),
    "the last was killed before it happened": (UP, "2", ["1", "2"]),
    "one was killed and tried again": (
        (*UP[:2], move(PROMOTE, "3", "2"), move(PROMOTE, "3", "2")), "3", ["1", "2", "3"],
    ),
    "one was killed and another came": (
        (*UP[:2], move(PROMOTE, "3", "2"), move(PROMOTE, "4", "2")), "4", ["1", "2", "4"],
    ),
    "a rollback was killed": ((*UP, move(ROLLBACK, "2", "3")), "3", ["1", "2", "3"]),
    "somebody changed the link": (UP, "7", ["1", "2", "3", "7"]),
    "only the end is known": ((move(PROMOTE, "3", "2"),), "3", ["2", "3"]),
    "the end goes back beyond itself": (
        (move(PROMOTE, "3", "2"), move(ROLLBACK, "2", "3"), move(ROLLBACK, "1", "2")), "1", ["1"],
    ),
    "others do not count": (
        (*UP, move(PROMOTE, "8", "3", "candidate"), Event(PUBLISH, "demo", "8"),
         Event(PROMOTE, "other", "8", STABLE, "7")), "3", ["1", "2", "3"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "now", "history"), HISTORIES.values(), ids=HISTORIES)
def test_history_of_a_channel(events: tuple[Event, ...], now: str, history: list[str]) -> None:
    assert find_history(events, "demo", STABLE, now) == history


def test_what_is_appended_is_read_with_time_and_person(tree: Tree) -> None:
    append(tree, UP[0])
    (event,) = read_tail(tree.journal)
    assert (event.version, event.channel) == ("1", STABLE)
    assert event.time.startswith("20")
    assert event.time.endswith("+00:00")
    assert event.by == find_person(os.environ)


@pytest.mark.parametrize(
    "torn", [b'{"event": "promote", "pro', b"\0\0\0\0", b"7\n", b"{}\n", b"\xff\n"]
)
def test_a_line_cut_short_is_ended_and_left_out(tree: Tree, torn: bytes) -> None:
    append(tree, UP[0])
    with tree.journal.open("ab") as stream:
        stream.write(torn)
    append(tree, UP[1])
    assert [event.version for event in read_tail(tree.journal)] == ["1", "2"]
    assert tree.journal.read_bytes().endswith(b"}\n")


def test_fields_of_a_later_program_are_no_obstacle(tree: Tree) -> None:
    tree.journal.write_text('{"event":"promote","profile":"demo","version":"1","colour":"x"}\n')
    assert read_tail(tree.journal) == (Event("promote", "demo", "1"),)


def test_a_tail_begins_with_a_whole_line(tree: Tree) -> None:
    for number in range(1000):
        append(tree, move(PROMOTE, str(number), str(number - 1)))
    tail = read_tail(tree.journal, TAIL)
    assert 100 < len(tail) < 1000
    assert tail[-1].version == "999"
    assert read_tail(tree.journal)[-len(tail) :] == tail


def test_no_journal_no_events(tree: Tree) -> None:
    assert read_tail(tree.journal, TAIL) == ()


def test_the_caller_of_sudo_is_the_person() -> None:
    assert find_person({"SUDO_USER": "jane"}) == "jane"
    assert find_person({}) != ""
