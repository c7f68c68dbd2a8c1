# SPDX-License-Identifier: Apache-2.0
"""A process that is killed at a change of a file or a start of a program."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

EVENTS = ("os.rename", "subprocess.Popen")


@dataclass
class Dying:
    """An audit hook (sys.addaudithook()) that kills its own process at the event after `left`."""

    left: int

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        del arguments
        if event in EVENTS:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def die_after(events: int) -> Dying:
    """Begin to count."""
    hook = Dying(events)
    sys.addaudithook(hook)
    return hook
