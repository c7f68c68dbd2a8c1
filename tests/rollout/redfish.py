# SPDX-License-Identifier: Apache-2.0
"""A Redfish BMC that switches a machine in QEMU: sushy-tools' emulator with a switch of ours.

    redfish.py CONFIG PORT NODE SWITCH

It answers before it acts, as BMCs do, and what it is asked for meanwhile counts for nothing.
"""

from __future__ import annotations

import subprocess
import sys
import threading

from sushy_tools.emulator import main as emulator  # type: ignore[import-untyped]

SECONDS = 5.0
WANTED = {"On": "on", "ForceOn": "on", "ForceOff": "off"}
NODE, SWITCH = sys.argv[3:5]
BUSY = threading.Lock()


def press(wanted: str) -> str:
    """What the switch says."""
    done = subprocess.run([SWITCH, NODE, wanted], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def act(wanted: str) -> None:
    try:
        press(wanted)
    finally:
        BUSY.release()


class Switch(emulator.fakedriver.FakeDriver):  # type: ignore[misc]
    """The power of the one system."""

    def get_power_state(self, identity: str) -> str:
        del identity
        return press("state").capitalize()

    def set_power_state(self, identity: str, state: str) -> None:
        if self.get_power_state(identity).lower() == WANTED[state]:
            return
        if BUSY.acquire(blocking=False):
            threading.Timer(SECONDS, act, [WANTED[state]]).start()


if __name__ == "__main__":
    config, port = sys.argv[1:3]
    emulator.fakedriver.FakeDriver = Switch
    sys.argv = ["sushy-emulator", "--fake", "--config", config, "-i", "127.0.0.1", "-p", port]
    sys.exit(emulator.main())
