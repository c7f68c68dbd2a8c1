# SPDX-License-Identifier: Apache-2.0
"""Where the web server listens: one address, never every one, and never the nodes' network."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address

from imagebuilder.errors import HostError, InputError
from imagebuilder.serve.interface import Network
from imagebuilder.settings import DEFAULT_LISTEN
from imagebuilder.web.node_networks import is_of_nodes, parse_address

PORT = int(DEFAULT_LISTEN.rpartition(":")[2])
# Who takes nothing for so long is cut off by the kernel, together with what was not sent yet.
STALLED_MS = 60_000


def parse_listen(
    text: str, networks: tuple[Network, ...], option: str = "--listen"
) -> tuple[str, int]:
    """Address and port of `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.  Raises InputError."""
    where = f"{option} {text}"
    address, port = split(text, where)
    if address.is_unspecified:
        raise InputError(
            "is every address, also the one on the nodes' network",
            where=where,
            hint="choose the address on which people reach this host; ip -brief address lists them",
        )
    if is_of_nodes(str(address), networks):
        raise InputError(
            "is on the nodes' network",
            where=where,
            hint="choose an address on a network without nodes, or leave it out for 127.0.0.1",
        )
    return str(address), port


def split(text: str, where: str) -> tuple[IPv4Address | IPv6Address, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    address = parse_address(host)
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    if address is None or (port and not 0 < number < 65536):
        hint = f"for example {DEFAULT_LISTEN}, 10.0.0.5 or [fd00::5]:{PORT}"
        raise InputError("is not ADDRESS:PORT", where=where, hint=hint)
    return address, number or PORT


def open_socket(address: str, port: int, *, stalled: int = STALLED_MS) -> socket.socket:
    """A socket that listens there.  Raises HostError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)  # connections have it
        made.bind((address, port))
        made.listen(256)
    except OSError as error:
        made.close()
        raise HostError(
            f"cannot listen: {error.strerror}",
            where=f"--listen {address}:{port}",
            hint="choose another address or port; ss -ltn shows who listens",
        ) from error
    return made
