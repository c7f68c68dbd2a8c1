# SPDX-License-Identifier: Apache-2.0
"""Maintenance windows by the clock on the wall, over midnight and when it is changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from imagebuilder.window import parse_window


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host whose clock is an hour ahead of UTC in winter, and two in summer."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def is_open(window: str, utc: str) -> bool:
    return parse_window(window).contains(datetime.fromisoformat(utc).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("window", "utc", "opened"),
    [
        # 2026-11-22 is a Sunday.
        ("Sun 02:00-05:00", "2026-11-22T00:59:59", False),
        ("Sun 02:00-05:00", "2026-11-22T01:00:00", True),
        ("Sun 02:00-05:00", "2026-11-22T03:59:59", True),
        ("Sun 02:00-05:00", "2026-11-22T04:00:00", False),
        ("Sun 02:00-05:00", "2026-11-23T02:00:00", False),
        ("02:00-05:00", "2026-11-23T02:00:00", True),
        ("Sat,Sun 00:00-24:00", "2026-11-21T22:59:59", True),
        ("Sat,Sun 00:00-24:00", "2026-11-22T22:59:59", True),
        ("Sat,Sun 00:00-24:00", "2026-11-22T23:00:00", False),
        ("Fri..Mon 01:00-02:00", "2026-11-23T00:30:00", True),
        ("Fri..Mon 01:00-02:00", "2026-11-24T00:30:00", False),
        # It begins on Saturday, and ends on Sunday.
        ("Sat 22:00-04:00", "2026-11-21T21:30:00", True),
        ("Sat 22:00-04:00", "2026-11-22T02:30:00", True),
        ("Sat 22:00-04:00", "2026-11-21T02:30:00", False),
        ("Sat 22:00-04:00", "2026-11-22T21:30:00", False),
    ],
)
def test_a_window_is_open_by_the_clock_of_this_host(
    window: str, utc: str, opened: bool  # noqa: FBT001
) -> None:  # fmt: skip
    assert is_open(window, utc) is opened


@pytest.mark.parametrize(("day", "minutes"), [
    ("2026-11-22", 180),
    ("2026-03-29", 120),  # 02:00 to 03:00 does not exist
    ("2026-10-25", 240),  # and comes twice
])  # fmt: skip
def test_a_changed_clock_makes_it_shorter_or_longer(day: str, minutes: int) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=3)
    window = parse_window("Sun 02:00-05:00")
    assert sum(window.contains(start + timedelta(minutes=n)) for n in range(1440)) == minutes


@pytest.mark.parametrize(
    "text",
    ["", "Sun", "sun 02:00-05:00", "Sunday 02:00-05:00", "2:00-5:00", "25:00-26:00", "02:00",
     "02:00-24:01", "Sun,  Mon 02:00-05:00", "Sun 02:00-05:00 UTC", "Sun..  02:00-05:00",
     "02:00-02:00", "24:00-02:00", " 02:00-05:00", "02:00-05:00\n"],
)  # fmt: skip
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a window|is empty"):
        parse_window(text)
