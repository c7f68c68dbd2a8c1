# SPDX-License-Identifier: Apache-2.0
"""The power switch of a machine in QEMU: `switch.py MONITOR on|off|state`.

A machine that is off stands still, and begins anew when it is switched on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from imagebuilder.boot.machine import ask_monitor

COMMANDS = {"on": ("system_reset", "cont"), "off": ("stop",), "state": ("info status",)}


def main(monitor: Path, wanted: str) -> int:
    """Press the switch; `state` prints what it is."""
    said = [ask_monitor(monitor, line) for line in COMMANDS[wanted]]
    if wanted == "state":
        print("on" if "running" in said[0] else "off")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
