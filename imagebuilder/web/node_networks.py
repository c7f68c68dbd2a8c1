# SPDX-License-Identifier: Apache-2.0
"""The networks on which nodes are served from this host: the web server is not for them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, ip_address

from imagebuilder.errors import ImagebuilderError
from imagebuilder.files import read_text
from imagebuilder.serve.interface import Network, find_networks
from imagebuilder.serve.prepare import FOREGROUND, INSTALLED
from imagebuilder.tree import Tree

INTERFACE = re.compile(r"^interface=(\S+)$", re.MULTILINE)
RANGE = re.compile(r"^dhcp-range=(?:tag:[^,]+,)?([0-9.]+),[^,]+,([0-9.]+)", re.MULTILINE)


def find_node_networks(tree: Tree) -> tuple[Network, ...]:
    """The networks that `serve` was given, in the foreground and as units.

    These are the subnet that it serves, even while the interface does not have its address, and
    those of all addresses of that interface: a node can use any of them, also over IPv6.
    """
    texts = tuple(read_served(tree))
    found = {network for text in texts for network in served_networks(text)}
    with contextlib.suppress(ImagebuilderError):
        found |= {*find_networks({name for text in texts for name in INTERFACE.findall(text)})}
    return tuple(sorted(found, key=lambda network: (network.version, network)))


def read_served(tree: Tree) -> Iterator[str]:
    """The configurations of dnsmasq; that of `serve --check` serves nobody."""
    for folder in (FOREGROUND, INSTALLED):
        with contextlib.suppress(OSError):
            yield read_text(tree.serve / folder / "dnsmasq.conf")


def served_networks(text: str) -> Iterator[Network]:
    """The subnets in a configuration of dnsmasq."""
    for address, mask in RANGE.findall(text):
        with contextlib.suppress(ValueError):
            yield IPv4Interface(f"{address}/{mask}").network


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """An address; one of IPv4 that is written as IPv6 is IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_of_nodes(text: str, networks: tuple[Network, ...]) -> bool:
    address = parse_address(text)
    return address is not None and any(address in network for network in networks)
