# SPDX-License-Identifier: Apache-2.0
"""Progress output: one line per step, and bars for long waits.

Everything goes to one stream (stderr); results belong on stdout and are printed elsewhere.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol, TextIO

from imagebuilder.errors import below
from imagebuilder.files import is_disk_full
from imagebuilder.untrusted import MOST_LONG, begin_colour, escape, fit, presentable

if TYPE_CHECKING:
    from datetime import timedelta

    from tqdm import tqdm

TITLE_WIDTH = 34
TIME_WIDTH = 10
SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
ASCII = {"✓": "+", "✗": "x", "…": "-"}
RED, GREEN, YELLOW, PLAIN = begin_colour(31), begin_colour(32), begin_colour(33), begin_colour(0)
CLEAR_LINE = "\r\x1b[K"


class StepLine:
    """A running step; `remark()` adds a few words to its final line."""

    def __init__(self, title: str, *, cleaning: bool) -> None:
        self.title = title
        self.cleaning = cleaning
        self.started = time.monotonic()
        self.words = ""

    def remark(self, words: str) -> None:
        """Show `words`, such as `42 packages`, after the time; the last remark counts."""
        self.words = words


class Bar(Protocol):
    """A progress bar; any thread may advance it."""

    def advance(self, amount: int) -> None:
        """`amount` more is done, in the bar's unit."""


class Ui:
    """Lines and bars on one stream.  Steps may run in parallel threads: lines stay complete.

    On a terminal (`interactive`) a temporary last line shows the running steps; elsewhere there are
    only plain ASCII lines.  Lines in parentheses are steps of the clean-up after an error.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        verbose: bool = False,
        interactive: bool = False,
        colour: bool = False,
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.verbose = verbose
        self.interactive = interactive
        self.colour = colour
        self._lock = threading.RLock()
        self._running: list[StepLine] = []
        self._bars: list[tqdm[NoReturn]] = []

    @classmethod
    def for_stream(cls, stream: TextIO, env: Mapping[str, str], *, verbose: bool = False) -> Ui:
        """A ui for `stream`: on a terminal with colours, unless NO_COLOR is set, and live lines."""
        interactive = stream.isatty() and env.get("TERM", "dumb") != "dumb"
        colour = interactive and not env.get("NO_COLOR")
        return cls(stream, verbose=verbose, interactive=interactive, colour=colour)

    @contextmanager
    def step(self, title: str) -> Iterator[StepLine]:
        """Print one line with the step's time when it ends or fails."""
        step = StepLine(title, cleaning=is_unwinding())
        with self._lock, lossy():
            self._running.append(step)
            self._draw_running()
        try:
            yield step
        except BaseException as error:
            self._end(step, failed_how(error))
            raise
        self._end(step, "")

    def note(self, text: str) -> None:
        self._write(f"({text})" if is_unwinding() else text)

    def detail(self, text: str) -> None:
        """Print a line if details are wanted."""
        if self.verbose:
            self._write(f"    {text}")

    def warn(self, text: str) -> None:
        self._write(f"{self._paint('warning:', YELLOW)} {text}")

    @contextmanager
    def bar(self, total: int, what: str, unit: str = "B") -> Iterator[Bar]:
        """Show a bar up to `total` (0: unknown) on a terminal, and print a line when it ends."""
        counter = Counter(self._open_bar(total, what, unit) if self.interactive else None)
        step = StepLine(what, cleaning=is_unwinding())
        try:
            yield counter
        except BaseException as error:
            self._close_bar(counter)
            self._end(step, failed_how(error))
            raise
        self._close_bar(counter)
        step.remark(format_amount(counter.done, unit))
        self._end(step, "")

    def _end(self, step: StepLine, failed: str) -> None:
        """Write the line of a finished step; `failed` is empty, `failed` or `interrupted`."""
        time_taken = format_duration(time.monotonic() - step.started)
        with self._lock:
            if step in self._running:
                self._running.remove(step)
            self._write(self._end_line(step, failed, time_taken))

    def _end_line(self, step: StepLine, failed: str, time_taken: str) -> str:
        if step.cleaning:
            how = f"{failed} after {time_taken}" if failed else time_taken
            return f"({step.title}: {how})"
        words = " ".join(filter(None, (failed, step.words)))
        if not self.interactive:
            how = f"{failed} after" if failed else "done in"
            return f"{step.title}: {how} {time_taken}" + (f", {step.words}" if step.words else "")
        symbol, colour = ("✗", RED) if failed else ("✓", GREEN)
        mark = self._paint(self._symbol(symbol), colour)
        return f"  {mark} {step.title:<{TITLE_WIDTH}}{time_taken:>{TIME_WIDTH}}  {words}".rstrip()

    def _write(self, line: str) -> None:
        """Write one complete line above the live line; all output passes here.

        A line that cannot be written, for instance to a full disk, is dropped: the work goes on.
        """
        line = presentable(below(line, 2))
        with self._lock, lossy():
            if self._bars:
                self._bars[-1].write(line, file=self.stream)
                return
            self.stream.write(f"{CLEAR_LINE if self.interactive else ''}{line}\n")
            self._draw_running()

    def _draw_running(self) -> None:
        """Draw the live line with the running steps."""
        if self.interactive and self._running and not self._bars:
            titles = fit(", ".join(step.title for step in self._running), MOST_LONG)
            width = shutil.get_terminal_size().columns - 1
            line = f"  {self._symbol('…')} {titles}"[:width]
            self.stream.write(f"{CLEAR_LINE}{line}")
        self.stream.flush()

    def _open_bar(self, total: int, what: str, unit: str) -> tqdm[NoReturn]:
        from tqdm import tqdm  # slow to import

        with self._lock:
            self.stream.write(CLEAR_LINE)
            drawn: tqdm[NoReturn] = tqdm(
                total=total or None, desc=f"  {fit(what)}",
                unit=unit if unit == "B" else f" {unit}s",
                unit_scale=unit == "B", leave=False,
                file=self.stream, dynamic_ncols=True, ascii=self._symbol("✓") == "+",
            )  # fmt: skip
            self._bars.append(drawn)
        return drawn

    def _close_bar(self, counter: Counter) -> None:
        if counter.drawn is not None:
            with self._lock:
                counter.drawn.close()
                self._bars.remove(counter.drawn)

    def _paint(self, text: str, colour: str) -> str:
        return paint(text, colour if self.colour else "")

    def _symbol(self, symbol: str) -> str:
        """`symbol`, or a replacement if the stream's encoding lacks it."""
        try:
            symbol.encode(self.stream.encoding or "ascii")
        except UnicodeEncodeError:
            return ASCII[symbol]
        return symbol


class Counter:
    """A Bar that counts, and draws on a terminal."""

    def __init__(self, drawn: tqdm[NoReturn] | None) -> None:
        self.drawn = drawn
        self.done = 0
        self._lock = threading.Lock()

    def advance(self, amount: int) -> None:
        """`amount` more is done, in the bar's unit."""
        with self._lock:
            self.done += amount
            if self.drawn is not None:
                self.drawn.update(amount)


class PoolProgress:
    """Shows the progress of a download into the package pool on a bar."""

    def __init__(self, ui: Ui) -> None:
        self._ui = ui
        self._stack = ExitStack()
        self._bar: Bar | None = None

    def start(self, total_bytes: int, what: str) -> None:
        self.done()
        self._bar = self._stack.enter_context(self._ui.bar(total_bytes, what))

    def advance(self, amount: int) -> None:
        """Add `amount` bytes."""
        if self._bar is not None:
            self._bar.advance(amount)

    def done(self) -> None:
        """End the bar; in a `finally` its line says whether the download failed."""
        self._bar = None
        self._stack.__exit__(*sys.exc_info())


@contextmanager
def lossy() -> Iterator[None]:
    """Drop output that does not fit on a full disk; a closed pipe still raises."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise


def flat(cell: str) -> str:
    return escape(cell).replace("\n", r"\n").replace("\t", " ")


def is_unwinding() -> bool:
    """Whether an error is being handled: in a `finally`, an `except` or an `__exit__`."""
    return sys.exc_info()[0] is not None


def failed_how(error: BaseException) -> str:
    """The word for a step that ended with `error`."""
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def format_size(size: float) -> str:
    """Bytes for people, in powers of 1000: `1.4 GB`, `673 MB`, `12 B`."""
    power = 0
    while round(size) >= 1000 and power < len(SIZES) - 1:
        size /= 1000
        power += 1
    return f"{size:.1f} {SIZES[power]}" if power and size < 9.95 else f"{size:.0f} {SIZES[power]}"


def format_amount(amount: int, unit: str) -> str:
    """An amount in a bar's unit: a size for bytes, otherwise how many of a thing."""
    return format_size(amount) if unit == "B" else format_count(amount, unit)


def format_time(stamp: str, *, to_second: bool = False) -> str:
    """A UTC time from isoformat(), for people: `2026-11-23 02:21 UTC`."""
    return f"{stamp[: 19 if to_second else 16].replace('T', ' ')} UTC"


def paint(text: str, shade: str) -> str:
    """`text` in a colour of the terminal; unchanged without a colour."""
    return f"{shade}{text}{PLAIN}" if shade else text


def format_count(number: int, thing: str) -> str:
    """`1 package`, `4,216 packages`, `2 binaries`, `2 days`."""
    plural = f"{thing[:-1]}ies" if thing[-1] == "y" and thing[-2] not in "aeou" else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def format_duration(seconds: float) -> str:
    """Seconds for people: `4.1 s`, `2 min 5 s`, `1 h 2 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_age(age: timedelta) -> str:
    """`12 s`, `5 min`, `3 h`, `9 days`.  A clock that runs ahead gives `0 s`."""
    seconds = max(0, int(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    if seconds < 172_800:
        return f"{seconds // 3600} h"
    return f"{seconds // 86_400} days"


def table(rows: Sequence[Sequence[str]], headers: Sequence[str] = ()) -> str:
    """Rows as aligned plain text, two spaces between columns, one line per row, no final newline.

    Control characters in cells cannot break a row.
    """
    lines = [[flat(cell) for cell in row] for row in ([headers, *rows] if headers else rows)]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
