# SPDX-License-Identifier: Apache-2.0
"""The networks on which nodes are served from this host: the web server is not for them."""

from __future__ import annotations

import contextlib
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

from imagebuilder.errors import ImagebuilderError
from imagebuilder.files import read_text
from imagebuilder.folders import matching
from imagebuilder.serve.interface import find_interface
from imagebuilder.tree import Tree

Network = IPv4Network
INTERFACE = re.compile(r"^interface=(\S+)$", re.MULTILINE)


def find_node_networks(tree: Tree) -> tuple[Network, ...]:
    """The networks of the interfaces that `serve` was given, in the foreground and as units."""
    names: set[str] = set()
    for path in matching(tree.serve, "*/dnsmasq.conf"):
        with contextlib.suppress(OSError):
            names |= {*INTERFACE.findall(read_text(path))}
    found = []
    for name in sorted(names):
        with contextlib.suppress(ImagebuilderError):
            found.append(find_interface(name).network)
    return tuple(found)


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """An address; one of IPv4 that is written as IPv6 is IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_of_nodes(text: str, networks: tuple[Network, ...]) -> bool:
    """Whether an address is in a network of nodes."""
    address = parse_address(text)
    return isinstance(address, IPv4Address) and any(address in network for network in networks)
