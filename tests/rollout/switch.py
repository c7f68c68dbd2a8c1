# SPDX-License-Identifier: Apache-2.0
"""The power switch of a machine in QEMU: `switch.py MONITOR on|off|state`.

A machine that is off stands still, and begins anew when it is switched on.  To switch on what is
on, or off what is off, does nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from imagebuilder.boot.machine import ask_monitor

COMMANDS = {"on": ("system_reset", "cont"), "off": ("stop",)}


def main(monitor: Path, wanted: str) -> int:
    """Press the switch; `state` prints what it is."""
    state = "on" if "running" in ask_monitor(monitor, "info status") else "off"
    if wanted == "state":
        print(state)
    elif wanted != state:
        for line in COMMANDS[wanted]:
            ask_monitor(monitor, line)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
