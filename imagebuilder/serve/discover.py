# SPDX-License-Identifier: Apache-2.0
"""Find DHCP servers on a network, with DHCPDISCOVER from a raw socket."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import IPv4Address

from imagebuilder.serve.interface import Interface

# Seconds to listen after each request.  Some servers ping an address for three seconds first.
PATIENCE = (1.0, 1.0, 3.0)
ETHERTYPE_IPV4 = 0x0800
COOKIE = b"\x63\x82\x53\x63"
DISCOVER, OFFER = 1, 2
MESSAGE_TYPE, SERVER_ID, PARAMETERS, VENDOR_CLASS, END = 53, 54, 55, 60, 255
# The vendor class of our own request, so that our server does not record it as a machine.
OURSELVES = "imagebuilder"
BROADCAST_FLAG = 0x8000
BROADCAST_MAC = b"\xff" * 6


@dataclass(frozen=True)
class Server:
    address: IPv4Address
    mac: str
    offered: IPv4Address


def find_dhcp_servers(interface: Interface) -> tuple[Server, ...]:
    """The servers that offer an address on this network; takes up to five seconds if none does.

    The request comes from a random MAC address, so that it changes no lease; servers forget an
    offer that is not accepted.
    """
    client = bytes((0x02, *secrets.token_bytes(5)))  # 0x02: locally administered
    xid = secrets.token_bytes(4)
    found: dict[Server, None] = {}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV4)) as packets:
        packets.bind((interface.name, ETHERTYPE_IPV4))
        for seconds in PATIENCE:
            request = discover(client, xid, (VENDOR_CLASS, OURSELVES.encode()))
            packets.send(frame(client, request))
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0:
                packets.settimeout(left)
                try:
                    server = parse_offer(packets.recv(65535), xid)
                except TimeoutError:
                    break
                if server and server.address != interface.server:
                    found[server] = None
            if found:
                break
    return tuple(found)


def discover(client: bytes, xid: bytes, *options: tuple[int, bytes]) -> bytes:
    """A DHCPDISCOVER (RFC 2131) of a NIC; `options` are added."""
    fixed = struct.pack(
        "!BBBB4sHH16x16s64x128x4s", 1, 1, 6, 0, xid, 0, BROADCAST_FLAG, client, COOKIE
    )
    requested = (
        (MESSAGE_TYPE, bytes((DISCOVER,))),
        (PARAMETERS, bytes((1, 3, 6, 12, 43, 54, 60, 66, 67))),
        *options,
    )
    return fixed + b"".join(bytes((code, len(data))) + data for code, data in requested) + b"\xff"


def frame(client: bytes, message: bytes) -> bytes:
    """`message` in a UDP broadcast from port 68 to 67, as an Ethernet frame."""
    udp = struct.pack("!HHHH", 68, 67, 8 + len(message), 0)  # checksum 0: not computed
    length = 20 + len(udp) + len(message)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, b"\0" * 4, b"\xff" * 4)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return BROADCAST_MAC + client + struct.pack("!H", ETHERTYPE_IPV4) + ip + udp + message


def checksum(header: bytes) -> int:
    """The checksum of an IPv4 header (RFC 791)."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def parse_reply(data: bytes, xid: bytes) -> tuple[bytes, dict[int, bytes]] | None:
    """The BOOTP fields and the options of a DHCP reply to `xid`; None for any other frame."""
    header = 14 + (data[14] & 0x0F) * 4 if len(data) > 14 else 0
    message = data[header + 8 :]
    if len(message) < 240 or data[23] != 17 or data[header : header + 2] != b"\0\x43":
        return None
    if message[0] != 2 or message[4:8] != xid or message[236:240] != COOKIE:
        return None
    options: dict[int, bytes] = {}
    rest = message[240:]
    while rest and rest[0] != END:
        if rest[0] == 0:  # padding
            rest = rest[1:]
            continue
        if len(rest) < 2:
            break
        options[rest[0]] = rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    return message, options


def parse_offer(data: bytes, xid: bytes) -> Server | None:
    """The server of an offer with an address: a proxy offers none."""
    reply = parse_reply(data, xid)
    if not reply:
        return None
    message, options = reply
    server, offered = options.get(SERVER_ID, b""), IPv4Address(message[16:20])
    if options.get(MESSAGE_TYPE) != bytes((OFFER,)) or len(server) != 4 or not int(offered):
        return None
    return Server(IPv4Address(server), data[6:12].hex(":"), offered)
