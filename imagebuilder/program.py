# SPDX-License-Identifier: Apache-2.0
"""Run a program in the background until its context ends, and collect its output."""

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
REMEMBERED = 1000  # lines of a program with `on_line`, which may run for months
KILLED = 137  # the exit status of a program that we killed
# Runs its arguments and ends them when stdin ends, which happens even if we are killed.  $0 is the
# signal that the kernel sends the program if this shell is killed first.  Remaining processes in
# its process group end with it: if they kept its output open, as the workers of a killed web server
# do, nobody would notice that it ended.
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
    """A running program: its output so far, and its exit status once it has ended."""

    name: str
    log: Path
    lines: list[str] = field(default_factory=list)
    status: int | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    on_line: Callable[[str], None] | None = None
    forgotten: int = 0

    def hear(self, line: str) -> None:
        """Add a printable line; called by the thread that follows the program."""
        line = clean(line, MOST_LINE)
        with self.changed:
            self.lines.append(line)
            if self.on_line:
                self.forget()
                self.on_line(line)
            self.changed.notify_all()

    def forget(self) -> None:
        """Drop the oldest lines: `on_line` has seen them."""
        many = max(0, len(self.lines) - REMEMBERED)
        del self.lines[:many]
        self.forgotten += many

    def end(self, status: int) -> None:
        with self.changed:
            self.status = status
            self.changed.notify_all()

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str]:
        """Wait for the first line that matches, among earlier lines too.

        Raises WorkError with the last lines on a timeout, or if the program ends.
        """
        deadline = time.monotonic() + seconds
        seen = 0
        with self.changed:
            while True:
                for line in self.lines[max(0, seen - self.forgotten) :]:
                    if match := re.search(pattern, line):
                        return match
                seen = self.forgotten + len(self.lines)
                left = deadline - time.monotonic()
                if self.status is not None or left <= 0:
                    how = "ended" if self.status is not None else f"took over {seconds:g} s"
                    raise self.complaint(f"{how} without printing {pattern!r}")
                self.changed.wait(left)

    def wait(self, seconds: float) -> int:
        """Wait for the exit status; raises WorkError if the program does not end in time."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.status is not None, seconds):
                raise self.complaint(f"is still running after {seconds:g} s")
        assert self.status is not None
        return self.status

    def said(self, pattern: str) -> list[str]:
        """All lines so far that match."""
        with self.changed:
            return [line for line in self.lines if re.search(pattern, line)]

    def complaint(self, what: str) -> WorkError:
        """An error with the last lines of the program."""
        shown = "".join(f"\n    {line}" for line in self.lines[-SHOWN_LINES:])
        return WorkError(f"{self.name} {what}{shown}", hint=f"see the whole log: {self.log}")


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
    """Run `argv` in the background; its output goes to `log`, to the Program and to `on_line`.

    `on_line` is called in a thread, and so is `on_loss`, with the reason why lines are missing in
    the log.  The status becomes known even if that thread fails.  `dies_by` is the signal that the
    program gets if we are killed: TERM for a program that must end its children.
    """
    started = Program(name, log, on_line=on_line)
    reading, writing = os.pipe()

    sink = Log(log, on_loss)

    def follow() -> None:
        status = KILLED
        try:
            with os.fdopen(reading, "rb") as stdin:
                # In a separate session: it survives a signal to our process group.
                words = ["setsid", "sh", "-c", SUPERVISE, dies_by, *argv]
                done = run(words, stdin=stdin, log=sink, on_line=started.hear, check=False)
                status = done.status
        except (ImagebuilderError, OSError, ValueError) as error:
            with started.changed:
                started.lines.append(f"(could not read its output: {error})")
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
