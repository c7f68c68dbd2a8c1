# SPDX-License-Identifier: Apache-2.0
"""What a machine or a daemon says, line by line, with the time of each."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# Sequences that move a terminal's cursor or colour it, operating system commands, other controls.
CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f]"
)
MOST = 1000  # characters of a line


@dataclass(frozen=True)
class Line:
    """What was said, `seconds` after power-on."""

    seconds: float
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} {self.text}"


class Console:
    """Takes lines from a thread and keeps them; `clock` tells seconds, `log` gets every line."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.started = time.monotonic()
        self.lines: list[Line] = []
        self.lock = threading.Lock()
        log.touch()

    @property
    def seconds(self) -> float:
        """Since power-on."""
        return time.monotonic() - self.started

    def hear(self, text: str) -> None:
        """Take a line in."""
        line = Line(self.seconds, clean(text))
        if not line.text:
            return
        with self.lock:
            self.lines.append(line)
            with self.log.open("a") as stream:
                stream.write(f"{line}\n")

    def since(self, index: int) -> list[Line]:
        """The lines from that one on."""
        with self.lock:
            return self.lines[index:]

    def said(self, pattern: str, since: int = 0) -> Line | None:
        """The first line from `since` on that matches."""
        return next((line for line in self.since(since) if re.search(pattern, line.text)), None)

    def tail(self, many: int, pattern: str = "") -> tuple[str, ...]:
        """The last lines, of those that match."""
        fitting = [line.text for line in self.since(0) if re.search(pattern, line.text)]
        return tuple(fitting[-many:])


class Tail:
    """The lines that come into a log file of somebody else, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def read(self) -> list[str]:
        """The whole lines that came since the last time."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self.offset += len(whole) + len(newline)
        return [clean(line) for line in whole.decode(errors="replace").split("\n") if whole]


def clean(text: str) -> str:
    """A line without what is meant for a terminal."""
    return CONTROL.sub("", text)[:MOST].rstrip()
