# SPDX-License-Identifier: Apache-2.0
"""How long nodes that are silent keep a command waiting."""

from __future__ import annotations

from math import ceil

from imagebuilder.fleet.probe import AT_ONCE, SECONDS


def test_800_nodes_that_are_silent_take_less_than_ten_seconds() -> None:
    assert ceil(800 / AT_ONCE) * SECONDS < 10
    assert AT_ONCE < 1000, "each is an open file, of which a shell allows 1024"
