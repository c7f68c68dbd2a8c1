# SPDX-License-Identifier: Apache-2.0
"""The served interface, its subnet, and the addresses to assign."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Network,
    ip_interface,
)
from typing import Any, cast

from imagebuilder.decode import parse_json, reading
from imagebuilder.errors import Fault, HostError, InputError
from imagebuilder.nodes.types import Node
from imagebuilder.process import run

Network = IPv4Network | IPv6Network
Pool = tuple[IPv4Address, IPv4Address]
SHOW_ADDRESSES = "ip -json address show"
LEASES_PER_NODE = 2  # firmware, iPXE and the system may each use another client id
SMALLEST_NETWORK = 29  # prefix length; a smaller one has no space for a server and a pool


@dataclass(frozen=True)
class Interface:
    """An interface that is up: `address` is our address on it, with its subnet."""

    name: str
    mac: str
    address: IPv4Interface
    has_carrier: bool = True

    @property
    def server(self) -> IPv4Address:
        return self.address.ip

    @property
    def network(self) -> IPv4Network:
        return self.address.network


def find_interface(interface: str, address: str = "") -> Interface:
    """The interface of that name, by ip-address(8); `address` chooses one of several.

    Raises InputError for an interface or address that does not exist, HostError for one that is
    down or has no IPv4 address.
    """
    return parse_links(run(SHOW_ADDRESSES.split()).stdout, interface, address)


def parse_links(shown: str, interface: str, address: str = "") -> Interface:
    """find_interface() on the text that `ip -json address show` printed."""
    with reading(SHOW_ADDRESSES, "iproute2 is too old or broken"):
        links = cast("list[dict[str, Any]]", parse_json(shown, SHOW_ADDRESSES))
        return choose_interface(links, interface, address)


def find_networks(interfaces: Collection[str]) -> tuple[Network, ...]:
    """The networks of all addresses of these interfaces, also IPv6 and link-local ones.

    Raises HostError and WorkError.
    """
    return parse_networks(run(SHOW_ADDRESSES.split()).stdout, interfaces) if interfaces else ()


def parse_networks(shown: str, interfaces: Collection[str]) -> tuple[Network, ...]:
    """find_networks() on the text that `ip -json address show` printed."""
    with reading(SHOW_ADDRESSES, "iproute2 is too old or broken"):
        links = cast("list[dict[str, Any]]", parse_json(shown, SHOW_ADDRESSES))
        return tuple(
            ip_interface(f"{info['local']}/{info['prefixlen']}").network
            for link in links
            if link["ifname"] in interfaces and "LOOPBACK" not in link["flags"]
            for info in link["addr_info"]
        )


def choose_interface(
    links: Sequence[Mapping[str, Any]], interface: str, address: str = ""
) -> Interface:
    """find_interface() on what `ip -json address show` printed."""
    names = [link["ifname"] for link in links if "LOOPBACK" not in link["flags"]]
    link = next((link for link in links if link["ifname"] == interface), None)
    if link is None or interface not in names:
        close = get_close_matches(interface, names, 1)
        mean = f"did you mean {close[0]}? " if close else ""
        raise InputError(
            "does not exist" if link is None else "nodes cannot be on the loopback interface",
            where=f"--interface {interface}",
            hint=f"{mean}available: {', '.join(names) or 'none'}",
        )
    if "UP" not in link["flags"]:
        raise HostError("is down", where=interface, hint=f"run sudo ip link set {interface} up")
    chosen = choose_address(link, address)
    return Interface(interface, link["address"], chosen, "NO-CARRIER" not in link["flags"])


def choose_address(link: Mapping[str, Any], address: str) -> IPv4Interface:
    """The IPv4 address of a link, with its prefix."""
    name = link["ifname"]
    found = [
        IPv4Interface(f"{info['local']}/{info['prefixlen']}")
        for info in link["addr_info"]
        if info["family"] == "inet"
    ]
    if not found:
        raise HostError(
            "has no IPv4 address",
            where=name,
            hint=f"run sudo ip address add 192.168.77.1/24 dev {name}, and make it permanent",
        )
    listed = ", ".join(str(one.ip) for one in found)
    if address:
        found = [one for one in found if str(one.ip) == address]
        if not found:
            raise InputError(
                f"{name} does not have it", where=f"--address {address}", hint=f"it has {listed}"
            )
    if len(found) > 1:
        raise InputError(
            f"has {len(found)} addresses: {listed}",
            where=name,
            hint=f"choose one: --address {found[0].ip}",
        )
    return found[0]


def parse_pool(text: str) -> Pool:
    """`--range A,B` as two addresses.  Raises InputError."""
    where = f"--range {text}"
    try:
        first, last = (IPv4Address(part.strip()) for part in text.split(","))
    except (AddressValueError, ValueError) as error:
        raise InputError(
            "must be two IPv4 addresses",
            where=where,
            hint="for example 192.168.77.100,192.168.77.199",
        ) from error
    if last < first:
        raise InputError("ends before it begins", where=where, hint=f"--range {last},{first}")
    return first, last


def plan_pool(interface: Interface, nodes: Sequence[Node], chosen: Pool | None) -> Pool:
    """The pool for machines without a fixed address.

    By default the longest free part of the subnet's upper half.  Raises InputError if the pool has
    less than LEASES_PER_NODE addresses per node, or contains an address that is in use.
    """
    if interface.network.prefixlen > SMALLEST_NETWORK:
        raise InputError(
            f"{interface.network} is too small for a server and nodes",
            where=interface.name,
            hint="give the interface an address in a /24",
        )
    reserved = {IPv4Address(node.address): node.name for node in nodes if node.address}
    pool = chosen or longest_free(interface.network, {interface.server, *reserved})
    faults = pool_faults(interface, pool, reserved, needed=LEASES_PER_NODE * len(nodes))
    if faults:
        raise InputError.of(faults)
    return pool


def longest_free(network: IPv4Network, taken: Collection[IPv4Address]) -> Pool:
    """The longest run of free addresses in the upper half of a subnet."""
    first = int(network.network_address) + network.num_addresses // 2
    end = int(network.broadcast_address)
    stops = [*sorted(int(address) for address in taken if first <= int(address) < end), end]
    starts = [first, *(stop + 1 for stop in stops[:-1])]
    start, stop = max(zip(starts, stops, strict=True), key=lambda run: run[1] - run[0])
    return IPv4Address(start), IPv4Address(max(start, stop - 1))


def pool_faults(
    interface: Interface, pool: Pool, reserved: Mapping[IPv4Address, str], *, needed: int
) -> list[Fault]:
    first, last = pool
    where = f"--range {first},{last}"
    network = interface.network
    faults: list[Fault] = []
    if first <= network.network_address or last >= network.broadcast_address:
        inside = f"{network.network_address + 1} to {network.broadcast_address - 1}"
        faults.append(
            Fault(where, f"is not inside {network}", f"{interface.name} can assign {inside}")
        )
    if first <= interface.server <= last:
        faults.append(Fault(where, f"contains the address of this server, {interface.server}"))
    faults += [
        Fault(where, f"contains {address}, the address of node {name}", "change one of the two")
        for address, name in sorted(reserved.items())
        if first <= address <= last
    ]
    size = int(last) - int(first) + 1
    if size < needed:
        faults.append(
            Fault(
                where,
                f"has {size} addresses, but {needed // LEASES_PER_NODE} nodes need {needed}",
                "set a larger one with --range, or use a larger subnet",
            )
        )
    return faults


def check_node_addresses(interface: Interface, nodes: Sequence[Node], where: str) -> None:
    """Raise InputError for every node whose address does not belong to this network.

    `where` is the file the nodes come from.
    """
    faults: list[Fault] = []
    for node in nodes:
        if not node.address:
            continue
        address = IPv4Address(node.address)
        subject = f"{where}: nodes.{node.name}.address"
        ends = (interface.network.network_address, interface.network.broadcast_address)
        if address not in interface.network or address in ends:
            what = f"{address} is not in {interface.network}, the subnet of {interface.name}"
            hint = f"run imagebuilder nodes set {node.name} --address …"
            faults.append(Fault(subject, what, hint))
        elif address == interface.server:
            faults.append(Fault(subject, f"{address} is this server's own address"))
    if faults:
        raise InputError.of(faults)
