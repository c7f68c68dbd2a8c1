# SPDX-License-Identifier: Apache-2.0
"""TREE/seen/asked.json: DHCP clients that are not in nodes.yaml.

Everything except the times is a claim of the machine.  Their number is bounded: the oldest is
dropped first, and network boots after all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from imagebuilder.decode import JsonFile, ZonedTime
from imagebuilder.files import place_file
from imagebuilder.nodes.evidence.seen import AnyText, find_file, matching
from imagebuilder.tree import MAC, Tree

MOST = 256
MOST_BYTES = 1024**2


@dataclass(frozen=True)
class DhcpClient:
    """A machine that requested an address; times are ISO 8601 in UTC.

    `architecture` is the number of its firmware (RFC 5970), None if it did not boot from the
    network.  `address` is what it got or requested; may be empty.
    """

    mac: Annotated[str, matching(MAC.pattern)]
    vendor: AnyText
    architecture: int | None
    address: Annotated[str, matching(r"[0-9.]*")]
    first: ZonedTime
    last: ZonedTime


@dataclass(frozen=True)
class DhcpClientRecords:
    """The file, the oldest first."""

    machines: tuple[DhcpClient, ...] = ()


DHCP_CLIENTS = JsonFile(DhcpClientRecords, 1, "remove it: the next DHCP requests create another")


def read_dhcp_clients(tree: Tree) -> tuple[DhcpClient, ...]:
    """The clients; none if the file is missing or damaged, because they are only suggestions."""
    found = find_file(tree.dhcp_clients, DHCP_CLIENTS, MOST_BYTES)
    return found.machines if found else ()


def write_dhcp_clients(tree: Tree, machines: Iterable[DhcpClient]) -> None:
    records = DhcpClientRecords(tuple(machines))
    place_file(tree.dhcp_clients, DHCP_CLIENTS.render(records).encode())
