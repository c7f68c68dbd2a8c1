# SPDX-License-Identifier: Apache-2.0
"""The daemons' lines on their way to who watches: never more than a fixed number wait."""

from __future__ import annotations

import threading
import time
from collections import deque

MOST_WAITING = 2000  # lines of one daemon


class Lines:
    """Takes lines from a thread for each daemon, and gives them out in turn.

    Who puts a line in never waits, for a daemon that waits serves nobody.  What comes while a
    daemon has too many is dropped and counted; a flood of one does not touch the others' lines.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self.waiting: dict[str, deque[str]] = {}
        self.dropped = 0
        self.news = threading.Condition()

    def put(self, daemon: str, line: str) -> None:
        """Take a line in, or drop it."""
        with self.news:
            queue = self.waiting.setdefault(daemon, deque())
            if len(queue) >= self.most:
                self.dropped += 1
                return
            queue.append(line)
            self.news.notify()

    def get(self, seconds: float) -> tuple[str, str] | None:
        """The next daemon and its line, waiting up to `seconds` for one."""
        deadline = time.monotonic() + seconds
        with self.news:
            while not any(self.waiting.values()):
                left = deadline - time.monotonic()
                if left <= 0 or not self.news.wait(left):
                    return None
            daemon = next(name for name, queue in self.waiting.items() if queue)
            queue = self.waiting.pop(daemon)
            line = queue.popleft()
            self.waiting[daemon] = queue  # behind the others
        return daemon, line

    def take_dropped(self) -> int:
        """How many were dropped since the last time."""
        with self.news:
            many, self.dropped = self.dropped, 0
        return many
