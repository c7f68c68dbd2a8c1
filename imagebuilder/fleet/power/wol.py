# SPDX-License-Identifier: Apache-2.0
"""Wake-on-LAN: the magic packet as raw Ethernet and as a UDP broadcast.

Some NICs and switches pass only one of the two, so both are sent.  A NIC can only be woken: the
node is switched off over ssh, and whether it has power is not known.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.decode import decode_box, parse_json
from imagebuilder.errors import HostError, InputError
from imagebuilder.fleet.power.protocol import PowerError
from imagebuilder.process import run

ETHERTYPE = 0x0842
PORTS = (9, 7)
BROADCAST = b"\xff" * 6


@dataclass(frozen=True)
class Route:
    """Of `ip -json route`: the interface, and the router if there is one."""

    dev: str
    gateway: str = ""


@dataclass(frozen=True)
class WakeOnLan:
    """`macs` are the node's NICs, `address` where it was or will be, empty if nobody knows.

    `interface` is where to send from, empty for the one that routes to `address`.
    """

    node: str
    macs: Sequence[str]
    address: str
    interface: str

    def on(self) -> None:
        interface = self.interface or find_interface(self.address)
        if not interface:
            raise PowerError(
                "cannot be woken: the interface to it is not known",
                where=self.node,
                hint="set `interface` below `power` in nodes.yaml, or `address` of the node",
            )
        sent = [send_udp(interface, mac) for mac in self.macs]
        sent += [send_ethernet(interface, mac) for mac in self.macs]
        problems = [problem for problem in sent if problem]
        if len(problems) == len(sent):
            raise PowerError(f"cannot be woken: {problems[0]}", where=self.node)

    def off(self) -> None:
        raise PowerError(
            "has no power switch: Wake-on-LAN can only switch it on",
            where=self.node,
            hint="press its button, or set `power: driver: exec` for a smart plug",
        )

    def is_on(self) -> bool | None:
        return None


def magic_packet(mac: str) -> bytes:
    """Six bytes of ones and the address 16 times (AMD's Magic Packet Technology, 20213)."""
    return BROADCAST + bytes.fromhex(mac.replace(":", "")) * 16


def send_udp(interface: str, mac: str) -> str:
    """Broadcast it on one interface; why that failed, or nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            for port in PORTS:
                sender.sendto(magic_packet(mac), ("255.255.255.255", port))
    except OSError as error:
        return f"{interface}: {error.strerror}"
    return ""


def send_ethernet(interface: str, mac: str) -> str:
    """Send it as a frame of its own, which needs root; why that failed, or nothing."""
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as sender:
            sender.bind((interface, 0))
            source = sender.getsockname()[4]
            kind = ETHERTYPE.to_bytes(2, "big")
            sender.send(BROADCAST + source + kind + magic_packet(mac))
    except OSError as error:
        return f"{interface}: {error.strerror}"
    return ""


def find_interface(address: str) -> str:
    """The interface that leads to `address` without a router; "" if there is none."""
    if not address:
        return ""
    try:
        said = run(["ip", "-json", "route", "get", address], check=False).stdout
        routes = decode_box(tuple[Route, ...], parse_json(said or "[]", "ip"), "ip")
    except (HostError, InputError):
        return ""
    return next((route.dev for route in routes if not route.gateway), "")
