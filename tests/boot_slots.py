# SPDX-License-Identifier: Apache-2.0
"""At most one file of boot tests at a time for each core, whatever the number of workers.

A machine that is emulated keeps a core busy: more of them boot no sooner, and time out.
"""

from __future__ import annotations

import errno
import socket
import time

PAUSE = 0.2  # seconds


class BootSlots:
    """The slots of all workers of a run: names of sockets, which the kernel frees at an end."""

    def __init__(self, run: str, number: int) -> None:
        self.names = [f"\0imagebuilder-tests-{run}-{slot}" for slot in range(number)]
        self.held: socket.socket | None = None

    def take(self) -> None:
        """Wait for a slot, unless this worker has one."""
        while self.held is None:
            self.held = next(filter(None, map(bind, self.names)), None)
            if self.held is None:
                time.sleep(PAUSE)

    def free(self) -> None:
        """Give the slot back, if this worker has one."""
        if self.held is not None:
            self.held.close()
        self.held = None


def bind(name: str) -> socket.socket | None:
    """A socket of this name; None if another one has it."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(name)
    except OSError as error:
        made.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return made
