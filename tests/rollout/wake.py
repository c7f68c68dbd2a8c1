# SPDX-License-Identifier: Apache-2.0
"""A network card that wakes its machine in QEMU: `wake.py INTERFACE MAC COMMAND...`.

It runs the command for each magic packet with its address, in whatever frame that comes
(AMD's Magic Packet Technology, 20213).
"""

from __future__ import annotations

import socket
import subprocess
import sys

EVERY_PROTOCOL = 0x0003  # ETH_P_ALL, linux/if_ether.h
FRAME = 2048


def main(interface: str, mac: str, command: list[str]) -> None:
    """Listen for ever."""
    magic = b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL)) as wire:
        wire.bind((interface, 0))
        print("listening", flush=True)
        while True:
            if magic in wire.recv(FRAME):
                print("woken", flush=True)
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
