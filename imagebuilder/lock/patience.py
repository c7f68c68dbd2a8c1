# SPDX-License-Identifier: Apache-2.0
"""The progress of a fetch, and when to give up on a slow mirror."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from imagebuilder.errors import HostError
from imagebuilder.folders import paths_below
from imagebuilder.ui import format_size

POLL_S = 0.2
# Files are copied when they are complete, and beside them are logs.
COPIES, SLACK = 2, 64 << 20


@dataclass(frozen=True)
class Patience:
    """A fetch with fewer than `rate` bytes per second for `seconds` is given up.

    A modem reaches 5 kB/s, and any line that can download an image overnight more than 10; a minute
    is longer than a proxy takes to scan a file for viruses.
    """

    rate: int = 10_000
    seconds: float = 60.0

    def __str__(self) -> str:
        return f"less than {self.rate / 1000:g} kB/s for {self.seconds:g} s"


PATIENCE = Patience()


class SlowError(HostError):
    """The fetch makes no progress."""


class EndlessError(HostError):
    """More arrives than was asked for."""


class Progress(Protocol):
    """Shows the progress of a fetch, in bytes."""

    def start(self, total: int, what: str) -> None:
        """A fetch of `total` bytes begins; `what` describes it in a line."""

    def advance(self, count: int) -> None:
        """`count` more bytes have arrived."""

    def done(self) -> None:
        """The fetch has ended, successfully or not."""


class Pace:
    """How fast the files below `folder` grow; any thread may ask.

    `total` bytes are to arrive, None if nobody knows.
    """

    def __init__(self, folder: Path, patience: Patience, total: int | None = None) -> None:
        self.folder, self.patience, self.total = folder, patience, total
        self.ended = False
        self._moved = 0
        self._seen = deque([(monotonic(), size_below(folder))])
        self._before = self._seen[0][1]
        self._lock = threading.Lock()

    def measure(self) -> int:
        """The bytes that have arrived so far."""
        now, size = monotonic(), size_below(self.folder) + self._moved
        with self._lock:
            self._seen.append((now, size))
            while len(self._seen) > 1 and self._seen[1][0] <= now - self.patience.seconds:
                self._seen.popleft()
        return size

    def moved(self, size: int) -> None:
        """A file of that size was moved out of the folder, and still counts."""
        self._moved += size

    @property
    def is_slow(self) -> bool:
        with self._lock:
            (first, before), (last, size) = self._seen[0], self._seen[-1]
        wanted = self.patience.rate * self.patience.seconds
        return last - first >= self.patience.seconds and size - before < wanted

    @property
    def arrived(self) -> int:
        """The bytes that had arrived when it was last measured."""
        with self._lock:
            return self._seen[-1][1] - self._before

    @property
    def is_endless(self) -> bool:
        """Whether more has arrived than can be of what was asked for."""
        return self.total is not None and self.arrived > COPIES * self.total + SLACK

    def ask(self) -> None:
        """Raise SlowError if the fetch is too slow or was cancelled, EndlessError if more arrives.

        A hash can be verified of what has an end; until then, a server could fill the disk.
        """
        if self.is_endless:
            raise EndlessError(
                f"a server sends more than the {format_size(self.total or 0)} that may come",
                where=str(self.folder),
                hint="somebody has changed what the mirror sends: use another mirror or network",
            )
        if self.ended or self.is_slow:
            raise SlowError(f"no progress: {self.patience}")


def size_below(folder: Path) -> int:
    """The bytes in files below `folder`, some of which may vanish meanwhile."""
    size = 0
    for path in paths_below(folder):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return size


@contextmanager
def watched(
    folder: Path,
    total: int,
    what: str,
    progress: Progress,
    patience: Patience = PATIENCE,
    *,
    whole: int,
) -> Iterator[Pace]:
    """Report to `progress` how the files below `folder` grow.

    `total` bytes are missing of files of `whole` bytes, which may be sent anew.
    """
    progress.start(total, what)
    try:
        tell = telling(progress, total, size_below(folder))
        with paced(folder, patience, tell, total=whole) as pace:
            yield pace
    finally:
        progress.done()


def telling(progress: Progress, total: int, before: int) -> Callable[[int], None]:
    """A function that reports each measured size to `progress`."""
    seen = 0

    def tell(size: int) -> None:
        nonlocal seen
        now = min(total, max(seen, size - before))
        if now > seen:
            progress.advance(now - seen)
            seen = now

    return tell


@contextmanager
def paced(
    folder: Path,
    patience: Patience = PATIENCE,
    tell: Callable[[int], None] = lambda _: None,
    *,
    total: int | None = None,
) -> Iterator[Pace]:
    """The pace of `folder`, measured in the background until the end."""
    pace = Pace(folder, patience, total)
    stop = threading.Event()

    def watch() -> None:
        ended = False
        while not ended:
            ended = stop.wait(POLL_S)
            tell(pace.measure())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield pace
    finally:
        stop.set()
        watcher.join()
