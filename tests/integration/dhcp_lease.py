# SPDX-License-Identifier: Apache-2.0
"""A machine that takes a lease and claims names, as a program: prints its address.

usage: python -m tests.integration.dhcp_lease INTERFACE MAC [HOST_NAME [FQDN]]
"""

from __future__ import annotations

import secrets
import socket
import sys
import time
from ipaddress import IPv4Address

from imagebuilder.serve.discover import ETHERTYPE_IPV4, SERVER_ID, discover, frame, parse_reply

SECONDS = 30.0  # dnsmasq tries an address of its pool for three before it offers it
HOST_NAME, REQUESTED, FQDN = 12, 50, 81
DISCOVERS, REQUESTS = b"\x35\x01\x01", b"\x35\x01\x03"
SERVER_UPDATES = b"\x01\0\0"  # RFC 4702: the server shall enter the name


def ask(end: socket.socket, client: bytes, message: bytes) -> tuple[bytes, dict[int, bytes]]:
    """The first answer to a message.  Raises TimeoutError when none comes."""
    end.send(frame(client, message))
    deadline = time.monotonic() + SECONDS
    while (left := deadline - time.monotonic()) > 0:
        end.settimeout(left)
        if reply := parse_reply(end.recv(65535), message[4:8]):
            return reply
    raise TimeoutError


def lease(interface: str, mac: str, name: str = "", fqdn: str = "") -> IPv4Address:
    """DISCOVER, OFFER, REQUEST, ACK: the address that was given."""
    client = bytes.fromhex(mac.replace(":", ""))
    claims = [(HOST_NAME, name.encode())] if name else []
    if fqdn:
        claims.append((FQDN, SERVER_UPDATES + fqdn.encode()))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV4)) as end:
        end.bind((interface, ETHERTYPE_IPV4))
        xid = secrets.token_bytes(4)
        offer, told = ask(end, client, discover(client, xid, *claims))
        taken = (REQUESTED, offer[16:20]), (SERVER_ID, told[SERVER_ID])
        request = discover(client, secrets.token_bytes(4), *taken, *claims)
        given, _ = ask(end, client, request.replace(DISCOVERS, REQUESTS, 1))
    return IPv4Address(given[16:20])


if __name__ == "__main__":
    print(lease(*sys.argv[1:5]))
