# SPDX-License-Identifier: Apache-2.0
"""Lines wait to be read in a bounded room, and a flood of one daemon is no other's."""

from __future__ import annotations

import threading
import time

from imagebuilder.serve.lines import Lines


def test_daemons_take_turns_and_each_keeps_its_order() -> None:
    lines = Lines()
    for number in range(3):
        lines.put("nginx", f"n{number}")
    lines.put("dnsmasq", "d0")
    got = [lines.get(0) for _ in range(5)]
    assert got == [("nginx", "n0"), ("dnsmasq", "d0"), ("nginx", "n1"), ("nginx", "n2"), None]


def test_what_is_too_much_is_dropped_and_counted_and_touches_nobody_else() -> None:
    lines = Lines(most=10)
    for number in range(1000):
        lines.put("nginx", str(number))
    lines.put("dnsmasq", "d0")
    assert lines.take_dropped() == 990
    assert lines.take_dropped() == 0
    assert ("dnsmasq", "d0") in [lines.get(0), lines.get(0)]
    assert sum(lines.get(0) is not None for _ in range(20)) == 9


def test_a_line_ends_the_waiting() -> None:
    lines = Lines()
    threading.Timer(0.1, lines.put, ("nginx", "late")).start()
    began = time.monotonic()
    assert lines.get(60) == ("nginx", "late")
    assert time.monotonic() - began < 30
