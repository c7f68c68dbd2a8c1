# SPDX-License-Identifier: Apache-2.0
"""Sessions end when they are not used, and there are only so many of them."""

from __future__ import annotations

from imagebuilder.web.session import IDLE, LONGEST, MOST, Sessions

HERE = "10.0.0.7"


def begin(sessions: Sessions, name: str = "ada") -> str:
    return sessions.begin(f"token of {name}", name, "admin", HERE)


def age(sessions: Sessions, key: str, seconds: float) -> None:
    """Let time pass for a session."""
    session = sessions.find(key, HERE)
    assert session
    session.used -= seconds
    session.begun -= seconds


def test_one_that_is_used_goes_on_for_its_longest_time() -> None:
    sessions = Sessions()
    key = begin(sessions)
    for _ in range(int(LONGEST / (IDLE * 0.9))):
        age(sessions, key, IDLE * 0.9)
    age(sessions, key, IDLE * 0.9)
    assert sessions.find(key, HERE) is None


def test_one_that_is_not_used_ends_early() -> None:
    sessions = Sessions()
    key = begin(sessions)
    age(sessions, key, IDLE + 1)
    assert sessions.find(key, HERE) is None


def test_the_oldest_gives_way_to_a_new_one() -> None:
    sessions = Sessions()
    keys = [begin(sessions) for _ in range(MOST + 2)]
    found = [sessions.find(key, HERE) is not None for key in keys]
    assert found == [False] * 2 + [True] * MOST


def test_those_that_are_over_give_way_first() -> None:
    sessions = Sessions()
    first = begin(sessions)
    for _ in range(MOST - 1):
        age(sessions, begin(sessions), IDLE + 1)
    begin(sessions)
    assert sessions.find(first, HERE)


def test_a_token_that_is_removed_takes_its_sessions_with_it() -> None:
    sessions = Sessions()
    first, second, other = begin(sessions), begin(sessions), begin(sessions, "ben")
    sessions.end_all_of("token of ada")
    assert [sessions.find(key, HERE) is None for key in (first, second, other)] == [
        True,
        True,
        False,
    ]


def test_each_has_a_secret_of_its_own() -> None:
    sessions = Sessions()
    ours, others = (sessions.find(begin(sessions), HERE) for _ in range(2))
    assert ours
    assert others
    assert ours.has_form(ours.csrf)
    for csrf in (others.csrf, "", "é", ours.csrf[:-1]):
        assert not ours.has_form(csrf)


def test_a_cookie_is_worth_nothing_elsewhere() -> None:
    """Whoever listens on another port of the host is sent it by the browser."""
    sessions = Sessions()
    key = begin(sessions)
    assert sessions.find(key, "10.0.0.8") is None
    assert sessions.find(key, HERE)
