# SPDX-License-Identifier: Apache-2.0
"""Clocks that cannot be right."""

from __future__ import annotations

import pytest

from imagebuilder.nightly.clock import DAY, clock_warnings

NOW = 1_795_000_000
SANE = {"lock": NOW - DAY, "night": NOW - DAY, "release": NOW - 3600}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({}, []),
        ({"lock": 0, "night": 0, "release": 0}, []),
        ({"release": NOW + 60}, []),
        ({"night": NOW + 3600}, ["the night before began"]),
        ({"lock": NOW + 9 * DAY}, ["the newest archive was made"]),
        ({"release": NOW + 3600}, ["the newest archive was made"]),
        ({"release": NOW - 20 * DAY}, []),
        ({"release": NOW - 400 * DAY}, ["400 days old"]),
        ({"night": NOW + DAY, "lock": NOW + DAY}, ["the night before", "the newest archive"]),
    ],
)
def test_warnings(what: dict[str, int], said: list[str]) -> None:
    found = list(clock_warnings(NOW, **{**SANE, **what}))
    assert len(found) == len(said)
    for text, words in zip(found, said, strict=True):
        assert words in text
