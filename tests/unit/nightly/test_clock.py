# SPDX-License-Identifier: Apache-2.0
"""Clocks that cannot be right."""

from __future__ import annotations

import pytest

from imagebuilder.nightly.upstream import DAY, clock_warnings

NOW = 1_795_000_000
SANE = {"lock": NOW - DAY, "run": NOW - DAY, "release": NOW - 3600}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({}, []),
        ({"lock": 0, "run": 0, "release": 0}, []),
        ({"release": NOW + 60}, []),
        ({"run": NOW + 3600}, ["the previous nightly run began"]),
        ({"lock": NOW + 9 * DAY}, ["the newest archive was made"]),
        ({"release": NOW + 3600}, ["the newest archive was made"]),
        ({"release": NOW - 20 * DAY}, []),
        ({"release": NOW - 400 * DAY}, ["400 days old"]),
        ({"run": NOW + DAY, "lock": NOW + DAY}, ["the previous nightly run", "the newest archive"]),
    ],
)
def test_warnings(what: dict[str, int], said: list[str]) -> None:
    found = list(clock_warnings(NOW, **{**SANE, **what}))
    assert len(found) == len(said)
    for text, words in zip(found, said, strict=True):
        assert words in text
