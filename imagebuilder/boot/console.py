# SPDX-License-Identifier: Apache-2.0
"""The output of a machine or a daemon, line by line, with the time of each line."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.log import Log
from imagebuilder.untrusted import clean

MOST = 1000  # characters of a line
MOST_LOG = 64_000_000  # bytes of a machine's log
MOST_LINES = 500_000  # a boot prints thousands; whoever prints without an end gets no memory


@dataclass(frozen=True)
class Line:
    """A line, `seconds` after power-on."""

    seconds: float
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} {self.text}"


class Console:
    """Collects lines from a thread; `clock` returns seconds, `log` gets every line."""

    def __init__(self, log: Path) -> None:
        log.touch()
        self.log = Log(log, most=MOST_LOG)
        self.started = time.monotonic()
        self.lines: list[Line] = []
        self.lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Since power-on."""
        return time.monotonic() - self.started

    def hear(self, text: str) -> None:
        line = Line(self.seconds, clean(text, MOST))
        if not line.text:
            return
        with self.lock:
            if len(self.lines) == MOST_LINES:
                self.lines.append(Line(line.seconds, f"more than {MOST_LINES} lines: not kept"))
            elif len(self.lines) < MOST_LINES:
                self.lines.append(line)
            self.log.write(f"{line}".encode())

    def since(self, index: int) -> list[Line]:
        with self.lock:
            return self.lines[index:]

    def said(self, pattern: str, since: int = 0) -> Line | None:
        """The first line from `since` on that matches."""
        return next((line for line in self.since(since) if re.search(pattern, line.text)), None)

    def tail(self, many: int, pattern: str = "") -> tuple[str, ...]:
        """The last lines that match."""
        fitting = [line.text for line in self.since(0) if re.search(pattern, line.text)]
        return tuple(fitting[-many:])
