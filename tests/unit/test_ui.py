# SPDX-License-Identifier: Apache-2.0
"""What a person sees: lines asserted as text, bars on a stream that says it is a terminal."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from imagebuilder.ui import (
    PoolProgress,
    Ui,
    format_age,
    format_amount,
    format_duration,
    format_size,
    table,
)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal with the given encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


def said(stream: io.StringIO) -> str:
    """What was written, as if no time had passed: this machine may be busy."""
    return re.sub(r"\b\d\.\d s\b", "0.0 s", stream.getvalue())


def lines_of(stream: io.StringIO) -> list[str]:
    """What stays on the terminal: every finished line, without what was overwritten."""
    text = re.sub(r"\x1b\[\d+m", "", said(stream))
    return [line.rsplit("\r", 1)[-1].removeprefix("\x1b[K") for line in text.split("\n")[:-1]]


def fail(ui: Ui, error: BaseException) -> None:
    """A step that fails and cleans up."""
    with ui.step("packages llama-cpp"):
        try:
            raise error
        finally:
            ui.note("removing the tree")
            with ui.step("unmounting"):
                pass


def test_a_step_is_one_plain_line_in_a_file() -> None:
    stream = io.StringIO()
    ui = Ui(stream)
    with ui.step("packages llama-cpp") as step:
        assert stream.getvalue() == ""
        step.remark("42 packages")
    assert said(stream) == "packages llama-cpp: done in 0.0 s, 42 packages\n"
    assert stream.getvalue().isascii()


def test_a_step_is_a_ticked_line_on_a_terminal() -> None:
    stream = Terminal()
    ui = Ui(stream, interactive=True, colour=True)
    with ui.step("packages llama-cpp") as step:
        assert stream.getvalue().endswith("  … packages llama-cpp")
        step.remark("42 packages")
    title = f"{'packages llama-cpp':<34}"
    assert lines_of(stream) == [f"  ✓ {title}     0.0 s  42 packages"]
    assert "\x1b[32m✓" in stream.getvalue()


def test_a_failed_step_says_so_and_cleaning_up_is_in_parentheses() -> None:
    stream = io.StringIO()
    with pytest.raises(OSError, match="disk full"):
        fail(Ui(stream), OSError("disk full"))
    assert said(stream).splitlines() == [
        "(removing the tree)",
        "(unmounting: 0.0 s)",
        "packages llama-cpp: failed after 0.0 s",
    ]


def test_an_interrupted_step_is_not_called_failed() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt):
        fail(Ui(stream, interactive=True), KeyboardInterrupt())
    assert lines_of(stream)[-1].split() == [
        "✗", "packages", "llama-cpp", "0.0", "s", "interrupted",
    ]  # fmt: skip


def test_a_note_after_a_handled_error_is_an_ordinary_line() -> None:
    stream = io.StringIO()
    ui = Ui(stream)
    with pytest.raises(OSError, match="x"), ui.step("a"):
        raise OSError("x")
    ui.note("going on")
    assert stream.getvalue().splitlines()[-1] == "going on"


def test_symbols_fall_back_where_the_encoding_lacks_them() -> None:
    stream = Terminal("ascii")
    with Ui(stream, interactive=True).step("initrd"):
        pass
    assert stream.getvalue().isascii()
    assert lines_of(stream)[0].startswith("  + initrd")


def test_details_are_for_those_who_ask() -> None:
    quiet, loud = io.StringIO(), io.StringIO()
    Ui(quiet).detail("Unpacking libfoo")
    Ui(loud, verbose=True).detail("Unpacking libfoo")
    assert (quiet.getvalue(), loud.getvalue()) == ("", "    Unpacking libfoo\n")


@pytest.mark.parametrize(
    ("env", "interactive", "colour"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
    ],
)
def test_the_environment_decides(env: dict[str, str], *, interactive: bool, colour: bool) -> None:
    ui = Ui.for_stream(Terminal(), env)
    assert (ui.interactive, ui.colour) == (interactive, colour)


def test_nothing_moves_and_nothing_is_coloured_in_a_file() -> None:
    stream = io.StringIO()
    ui = Ui.for_stream(stream, {"TERM": "xterm"})
    ui.warn("the Release file is past its end")
    with ui.bar(2_000_000, "Fetching 2 packages") as bar:
        bar.advance(2_000_000)
    assert said(stream).splitlines() == [
        "warning: the Release file is past its end",
        "Fetching 2 packages: done in 0.0 s, 2.0 MB",
    ]


def test_a_bar_on_a_terminal_gives_way_to_lines_and_leaves_one() -> None:
    stream = Terminal()
    ui = Ui(stream, interactive=True)
    with ui.bar(3, "Compiling", unit="file") as bar:
        bar.advance(2)
        ui.note("in between")
        bar.advance(1)
    lines = lines_of(stream)
    assert [line for line in lines if line == "in between"]
    assert lines[-1].split() == ["✓", "Compiling", "0.0", "s", "3", "files"]


def test_a_bar_that_fails_says_so() -> None:
    stream = Terminal()
    ui = Ui(stream, interactive=True)
    with pytest.raises(OSError, match="reset"), ui.bar(0, "Fetching"):
        raise OSError("reset")
    assert lines_of(stream)[-1].split()[-1] == "failed"
    ui.note("and the next line is an ordinary one")
    assert lines_of(stream)[-1] == "and the next line is an ordinary one"


def test_the_pool_tells_a_bar() -> None:
    stream = io.StringIO()
    progress = PoolProgress(Ui(stream))
    progress.done()
    for what in ("Fetching a", "Fetching b"):
        progress.start(10, what)
        progress.advance(4)
        progress.advance(6)
        progress.done()
    with pytest.raises(OSError, match="reset"):
        fetch_and_fail(progress)
    assert said(stream).splitlines() == [
        "Fetching a: done in 0.0 s, 10 B",
        "Fetching b: done in 0.0 s, 10 B",
        "Fetching c: failed after 0.0 s",
    ]


def fetch_and_fail(progress: PoolProgress) -> None:
    """A download whose connection is reset."""
    progress.start(10, "Fetching c")
    try:
        raise OSError("reset")
    finally:
        progress.done()


@pytest.mark.parametrize("make", [io.StringIO, Terminal])
def test_lines_of_parallel_steps_stay_whole(make: Callable[[], io.StringIO]) -> None:
    stream = make()
    ui = Ui(stream, interactive=stream.isatty())
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(40):
            with ui.step(f"step-{number}-{turn}"):
                ui.note(f"note-{number}-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = sorted(re.sub(r"^  ✓ |:? +(done in )?0\.\d s$", "", line) for line in lines_of(stream))
    assert words == sorted(
        f"{kind}-{number}-{turn}"
        for kind in ("step", "note")
        for number in range(8)
        for turn in range(40)
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (9_949, "9.9 kB"), (9_950, "10 kB"),
        (673_000_000, "673 MB"), (999_999, "1.0 MB"), (1_400_000_000, "1.4 GB"), (6.1e9, "6.1 GB"),
        (2.5e18, "2500 PB"),
    ],
)  # fmt: skip
def test_format_size(size: float, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"), (4.1, "4.1 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"),
        (125, "2 min 5 s"), (3599.6, "1 h 0 min"), (3725, "1 h 2 min"),
    ],
)  # fmt: skip
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_format_amount() -> None:
    assert format_amount(3, "file") == "3 files"
    assert format_amount(1, "layer") == "1 layer"
    assert format_amount(3000, "B") == "3.0 kB"


def test_table_aligns_and_leaves_no_trailing_space() -> None:
    rows = [["generic", "1.2 GB", ""], ["rx7600xt", "6.1 GB", "ROCm"]]
    assert table(rows, ["profile", "size", "what"]).splitlines() == [
        "profile   size    what",
        "generic   1.2 GB",
        "rx7600xt  6.1 GB  ROCm",
    ]
    assert table([]) == ""
    assert table([], ["a"]) == "a"


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172_800, "2 days"),
    ],
)
def test_ages_are_read_at_a_glance(age: int, text: str) -> None:
    assert format_age(timedelta(seconds=age)) == text
