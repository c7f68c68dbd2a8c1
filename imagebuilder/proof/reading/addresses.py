# SPDX-License-Identifier: Apache-2.0
"""Addresses in settings and command lines: which of them other machines reach."""

from __future__ import annotations

import ipaddress

NAMES = frozenset(("localhost", "localhost.localdomain", "localhost6", "ip6-localhost"))


def host_of(text: str) -> str:
    """The host of an address, without port and brackets."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    first = text.partition(":")[0]
    return first if "." in first or first in NAMES or text.count(":") < 2 else text


def is_loopback(text: str) -> bool:
    """Whether an address, with or without a port or the length of a prefix, is the machine's own
    one.
    """
    host = host_of(text).partition("/")[0]
    try:
        return host.lower() in NAMES or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(text: str) -> bool:
    """Whether an address is the machine's own one, or a socket in a file."""
    return is_loopback(text) or text.startswith(("/", "unix:")) or text.endswith(".sock")
