# SPDX-License-Identifier: Apache-2.0
"""Addresses in settings and command lines: which of them other machines reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from imagebuilder.root import Root

HOSTS = "/etc/hosts"
NAMES = frozenset(("localhost", "localhost.localdomain", "localhost6", "ip6-localhost"))


def host_of(text: str) -> str:
    """The host of an address, without port and brackets."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    first = text.partition(":")[0]
    return first if "." in first or first in NAMES or text.count(":") < 2 else text


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is, None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def read_hosts(root: Root) -> Iterator[tuple[str, list[str], str]]:
    """The lines of hosts(5): an address, its names, and the line."""
    for line in root.text(HOSTS).splitlines():
        if words := line.partition("#")[0].split():
            yield words[0], words[1:], line.strip()


def is_loopback(text: str) -> bool:
    """Whether an address, with or without port or prefix, is the machine's own one."""
    host = host_of(text).partition("/")[0]
    address = parse_address(host)
    return host.lower() in NAMES or (address is not None and address.is_loopback)


def is_local(text: str) -> bool:
    """Whether an address is the machine's own one, or a socket in a file."""
    return is_loopback(text) or text.startswith(("/", "unix:")) or text.endswith(".sock")
