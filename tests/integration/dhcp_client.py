# SPDX-License-Identifier: Apache-2.0
"""A firmware's DHCPDISCOVER, as a program: prints what the servers on the wire answer, as JSON.

usage: python -m tests.integration.dhcp_client INTERFACE MAC ARCHITECTURE [VENDOR [USER CLASS]]
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
import time
from ipaddress import IPv4Address

from imagebuilder.serve.discover import (
    ETHERTYPE_IPV4,
    SERVER_ID,
    VENDOR_CLASS,
    discover,
    frame,
    parse_reply,
)

SECONDS = 30.0  # dnsmasq tries an address of its pool for three before it offers it
QUIET = 0.7
USER_CLASS, ARCHITECTURE, BOOT_FILE = 77, 93, 67


def ask(interface: str, mac: str, architecture: int, vendor: str, user: str) -> list[object]:
    """Every answer until the wire is quiet."""
    client, xid = bytes.fromhex(mac.replace(":", "")), secrets.token_bytes(4)
    options = [(ARCHITECTURE, architecture.to_bytes(2, "big"))]
    options.append((VENDOR_CLASS, f"{vendor}:Arch:{architecture:05}:UNDI:003016".encode()))
    if user:
        options += [(USER_CLASS, user.encode()), (175, b"\x01\x01\x00")]
    found: list[object] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV4)) as end:
        end.bind((interface, ETHERTYPE_IPV4))
        end.send(frame(client, discover(client, xid, *options)))
        deadline = time.monotonic() + SECONDS
        while (left := deadline - time.monotonic()) > 0:
            end.settimeout(min(left, QUIET) if found else left)
            try:
                reply = parse_reply(end.recv(65535), xid)
            except TimeoutError:
                break
            if reply:
                found.append(describe(*reply))
    return found


def describe(message: bytes, options: dict[int, bytes]) -> object:
    """An answer with its names as text."""
    file = options.get(BOOT_FILE, b"").rstrip(b"\0") or message[108:236].rstrip(b"\0")
    return {
        "server": str(IPv4Address(options.get(SERVER_ID, b"\0\0\0\0"))),
        "address": str(IPv4Address(message[16:20])),
        "next": str(IPv4Address(message[20:24])),
        "file": file.decode(),
        "vendor": options.get(VENDOR_CLASS, b"").decode(),
        "options": {str(code): data.hex() for code, data in options.items()},
    }


if __name__ == "__main__":
    vendor, user = (sys.argv[4:] + ["PXEClient", ""][len(sys.argv[4:]) :])[:2]
    print(json.dumps(ask(sys.argv[1], sys.argv[2], int(sys.argv[3]), vendor, user)))
