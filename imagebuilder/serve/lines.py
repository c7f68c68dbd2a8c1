# SPDX-License-Identifier: Apache-2.0
"""A bounded queue of the daemons' lines."""

from __future__ import annotations

import threading
import time
from collections import deque

MOST_WAITING = 2000  # lines of one daemon


class Lines:
    """Takes lines from a thread for each daemon, and returns them in turn.

    put() never waits, because a daemon that waits serves nobody.  Further lines of a daemon with
    too many are dropped and counted; they do not affect the lines of other daemons.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self.waiting: dict[str, deque[str]] = {}
        self.dropped = 0
        self.changed = threading.Condition()

    def put(self, daemon: str, line: str) -> None:
        with self.changed:
            queue = self.waiting.setdefault(daemon, deque())
            if len(queue) >= self.most:
                self.dropped += 1
                return
            queue.append(line)
            self.changed.notify()

    def get(self, seconds: float) -> tuple[str, str] | None:
        """The next daemon and its line, waiting up to `seconds` for one."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not any(self.waiting.values()):
                left = deadline - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    return None
            daemon = next(name for name, queue in self.waiting.items() if queue)
            queue = self.waiting.pop(daemon)
            line = queue.popleft()
            self.waiting[daemon] = queue  # after the others
        return daemon, line

    def take_dropped(self) -> int:
        """The number of lines dropped since the last call."""
        with self.changed:
            many, self.dropped = self.dropped, 0
        return many
