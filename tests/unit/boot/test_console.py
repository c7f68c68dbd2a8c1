# SPDX-License-Identifier: Apache-2.0
"""Lines of a console: cleaned, timed and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.boot import console as console_module
from imagebuilder.boot.console import MOST, Console
from imagebuilder.untrusted import clean


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("\x1b[1;31mred\x1b[0m words", "red words"),
        ("\x1b]3008;start=4a;user=root\x1b\\$ ls", "$ ls"),
        ("\x1bP+q6E616D65\x1b\\[    5.07] systemd[1]: up", "[    5.07] systemd[1]: up"),
        ("\x1b[18t\x1b7\x1b[32766;32766H\x1b[6nlogin:", "login:"),
        ("bell\x07 and nul\x00  ", "bell and nul"),
        ("tabs\tare spaces, ümläuts stay", "tabs are spaces, ümläuts stay"),
        ("x" * 5000, "x" * 999 + "…"),
    ],
)
def test_what_is_meant_for_a_terminal_goes(said: str, kept: str) -> None:
    assert clean(said, MOST) == kept


def test_a_console_keeps_lines_and_writes_them_down(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log")
    for line in ("one", "\x1b[0m", "two", "three"):
        console.hear(line)
    assert [line.text for line in console.since(0)] == ["one", "two", "three"]
    assert [line.text for line in console.since(2)] == ["three"]
    assert console.tail(2) == ("two", "three")
    assert console.tail(2, "t") == ("two", "three")
    found = console.said("^t")
    assert found
    assert found.text == "two"
    assert console.said("one", since=1) is None
    written = (tmp_path / "console.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in written] == ["one", "two", "three"]
    assert all(float(line.split()[0]) >= 0 for line in written)


def test_a_machine_that_prints_without_an_end_fills_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_module, "MOST_LINES", 3)
    console = Console(tmp_path / "console.log")
    for number in range(100):
        console.hear(f"line {number}")
    assert [line.text for line in console.since(2)] == ["line 2", "more than 3 lines: not kept"]
