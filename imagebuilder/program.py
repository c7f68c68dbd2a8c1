# SPDX-License-Identifier: Apache-2.0
"""A program that runs beside us until its context ends, and the lines it says."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.errors import ImagebuilderError, WorkError
from imagebuilder.log import MOST_LINE, Log
from imagebuilder.process import Word, run
from imagebuilder.untrusted import clean

SHOWN_LINES = 40
REMEMBERED = 1000  # lines of a program that is listened to, which may run for months
KILLED = 137  # the exit status of what we had to kill
# Runs its arguments and ends them when stdin ends, which happens even if we are killed.  $0 is the
# signal that the kernel sends the program should this shell be killed first.  What the program
# leaves behind in its process group ends with it: whoever keeps its output open, such as the
# workers of a web server that was killed, would hide that it ended.
SUPERVISE = """\
exec 3<&0
setpriv --pdeathsig "$0" -- setsid "$@" < /dev/null &
program=$!
{
    read -r line <&3
    kill "$program"
    for try in $(seq 100); do sleep 0.1; kill -0 "$program" || break; done
    kill -s KILL -- "-$program"
} > /dev/null 2>&1 &
keeper=$!
wait "$program"
status=$?
kill "$keeper"
kill -s KILL -- "-$program" 2> /dev/null
exit "$status"
"""


@dataclass
class Program:
    """A running program: what it said so far, and its exit status once it ended."""

    name: str
    log: Path
    lines: list[str] = field(default_factory=list)
    status: int | None = None
    news: threading.Condition = field(default_factory=threading.Condition)
    on_line: Callable[[str], None] | None = None
    forgotten: int = 0

    def hear(self, line: str) -> None:
        """Take a line in, fit to print; called by the thread that follows the program."""
        line = clean(line, MOST_LINE)
        with self.news:
            self.lines.append(line)
            if self.on_line:
                self.forget()
                self.on_line(line)
            self.news.notify_all()

    def forget(self) -> None:
        """Drop the oldest lines: whoever listens keeps what it needs."""
        many = max(0, len(self.lines) - REMEMBERED)
        del self.lines[:many]
        self.forgotten += many

    def end(self, status: int) -> None:
        with self.news:
            self.status = status
            self.news.notify_all()

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str]:
        """The first line that matches, said or yet to be said.

        Raises WorkError with the last lines when the time is over or the program ended before.
        """
        deadline = time.monotonic() + seconds
        seen = 0
        with self.news:
            while True:
                for line in self.lines[max(0, seen - self.forgotten) :]:
                    if match := re.search(pattern, line):
                        return match
                seen = self.forgotten + len(self.lines)
                left = deadline - time.monotonic()
                if self.status is not None or left <= 0:
                    how = "ended" if self.status is not None else f"took over {seconds:g} s"
                    raise self.complaint(f"{how} without saying {pattern!r}")
                self.news.wait(left)

    def wait(self, seconds: float) -> int:
        """The exit status; raises WorkError when it does not end in time."""
        with self.news:
            if not self.news.wait_for(lambda: self.status is not None, seconds):
                raise self.complaint(f"still runs after {seconds:g} s")
        assert self.status is not None
        return self.status

    def said(self, pattern: str) -> list[str]:
        """Every line so far that matches."""
        with self.news:
            return [line for line in self.lines if re.search(pattern, line)]

    def complaint(self, what: str) -> WorkError:
        """An error that shows what the program said last."""
        shown = "".join(f"\n    {line}" for line in self.lines[-SHOWN_LINES:])
        return WorkError(f"{self.name} {what}{shown}", hint=f"whole log: {self.log}")


@contextlib.contextmanager
def program(
    name: str,
    argv: Sequence[Word],
    log: Path,
    *,
    on_line: Callable[[str], None] | None = None,
    on_loss: Callable[[str], None] | None = None,
    dies_by: str = "KILL",
) -> Iterator[Program]:
    """Run `argv` beside us; what it says goes to `log`, to the Program and to `on_line`.

    `on_line` is called in a thread, and so is `on_loss`, with the reason why lines are not in the
    log.  However the program or that thread ends, its status becomes known.  `dies_by` is the
    signal the program gets when we are killed: TERM for one that has children of its own to end.
    """
    started = Program(name, log, on_line=on_line)
    reading, writing = os.pipe()

    sink = Log(log, on_loss)

    def follow() -> None:
        status = KILLED
        try:
            with os.fdopen(reading, "rb") as stdin:
                # In a session of its own: it outlives whoever ends our process group.
                words = ["setsid", "sh", "-c", SUPERVISE, dies_by, *argv]
                done = run(words, stdin=stdin, log=sink, on_line=started.hear, check=False)
                status = done.status
        except (ImagebuilderError, OSError, ValueError) as error:
            with started.news:
                started.lines.append(f"(cannot be followed: {error})")
        finally:
            sink.close()
            started.end(status)

    thread = threading.Thread(target=follow, name=name)
    thread.start()
    try:
        yield started
    finally:
        os.close(writing)
        thread.join()
