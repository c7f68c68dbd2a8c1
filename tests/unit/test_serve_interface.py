# SPDX-License-Identifier: Apache-2.0
"""The wire that is chosen, and the addresses that are given away on it."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.nodes.types import Node
from imagebuilder.serve.interface import (
    Interface,
    check_node_addresses,
    choose_interface,
    longest_free,
    parse_networks,
    parse_pool,
    plan_pool,
)

WIRE = Interface("eth1", "02:00:00:00:00:01", IPv4Interface("10.0.0.1/24"))


def link(name: str, *addresses: str, flags: str = "BROADCAST UP LOWER_UP") -> dict[str, Any]:
    """A link as `ip -json address show` has it."""
    infos = [address.split("/") for address in addresses]
    return {
        "ifname": name,
        "flags": flags.split(),
        "address": "02:00:00:00:00:01",
        "addr_info": [
            {"family": "inet", "local": local, "prefixlen": int(prefix)} for local, prefix in infos
        ]
        + [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}],
    }


LINKS = (
    link("lo", "127.0.0.1/8", flags="LOOPBACK UP"),
    link("eth0", "192.0.2.2/24"),
    link("eth1", "10.0.0.1/24", "10.1.0.1/16"),
    link("eth2", flags="BROADCAST UP"),
    link("eth3", "10.3.0.1/24", flags="BROADCAST"),
    link("eth4", "10.4.0.1/24", flags="NO-CARRIER BROADCAST UP"),
)


def node(name: str, address: str = "") -> Node:
    """A node with little to it."""
    return Node(name, ("52:54:00:00:00:01",), "generic", address=address)


def test_the_networks_are_those_of_every_address() -> None:
    found = [str(one) for one in parse_networks(json.dumps(LINKS), {"eth1", "eth3", "lo"})]
    assert found == ["10.0.0.0/24", "10.1.0.0/16", "fe80::/64", "10.3.0.0/24", "fe80::/64"]


def test_the_interface_is_found() -> None:
    found = choose_interface(LINKS, "eth0")
    assert (found.name, str(found.address), found.has_carrier) == ("eth0", "192.0.2.2/24", True)
    assert (str(found.server), str(found.network)) == ("192.0.2.2", "192.0.2.0/24")


def test_one_of_several_addresses_is_chosen() -> None:
    assert str(choose_interface(LINKS, "eth1", "10.1.0.1").address) == "10.1.0.1/16"


def test_a_cable_that_is_out_is_known() -> None:
    assert not choose_interface(LINKS, "eth4").has_carrier


@pytest.mark.parametrize(
    ("interface", "address", "kind", "said", "hint"),
    [
        ("eth9", "", InputError, "does not exist", "eth0, eth1, eth2, eth3, eth4"),
        ("lo", "", InputError, "cannot be on the loopback interface", "available: "),
        ("eth1", "", InputError, "has 2 addresses: 10.0.0.1, 10.1.0.1", "--address 10.0.0.1"),
        ("eth1", "10.2.0.1", InputError, "eth1 does not have it", "it has 10.0.0.1, 10.1.0.1"),
        ("eth2", "", HostError, "has no IPv4 address", "sudo ip address add"),
        ("eth3", "", HostError, "is down", "sudo ip link set eth3 up"),
    ],
)
def test_what_is_wrong_with_an_interface(
    interface: str, address: str, kind: type[ImagebuilderError], said: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        choose_interface(LINKS, interface, address)
    (fault,) = caught.value.faults
    assert said in fault.what
    assert hint in fault.hint


def test_a_range_is_two_addresses() -> None:
    assert parse_pool("10.0.0.5, 10.0.0.9") == (IPv4Address("10.0.0.5"), IPv4Address("10.0.0.9"))


@pytest.mark.parametrize(
    "text", ["10.0.0.5", "a,b", "10.0.0.9,10.0.0.5", "1.1.1.1,2.2.2.2,3.3.3.3"]
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(InputError):
        parse_pool(text)


def test_the_pool_is_the_upper_half() -> None:
    assert plan_pool(WIRE, (), None) == (IPv4Address("10.0.0.128"), IPv4Address("10.0.0.254"))


def test_the_pool_goes_around_nodes_and_the_server() -> None:
    interface = Interface("eth1", "", IPv4Interface("10.0.0.254/24"))
    pool = plan_pool(interface, (node("a", "10.0.0.140"), node("b", "10.0.0.7")), None)
    assert pool == (IPv4Address("10.0.0.141"), IPv4Address("10.0.0.253"))


@pytest.mark.parametrize(
    ("interface", "nodes", "text", "said"),
    [
        ("10.0.0.1/30", 0, "", "is too small"),
        ("10.0.0.1/29", 2, "", "has 3 addresses, but 2 nodes need 4"),
        ("10.0.0.1/24", 2, "10.0.0.9,10.0.0.11", "has 3 addresses, but 2 nodes need 4"),
        ("10.0.0.1/24", 0, "10.0.0.0,10.0.0.9", "is not inside 10.0.0.0/24"),
        ("10.0.0.1/24", 0, "10.0.0.9,10.0.0.255", "is not inside 10.0.0.0/24"),
        ("10.0.0.1/24", 0, "10.0.1.2,10.0.1.9", "is not inside 10.0.0.0/24"),
        ("10.0.0.5/24", 0, "10.0.0.2,10.0.0.9", "contains the address of this server"),
    ],
)
def test_what_is_wrong_with_a_pool(interface: str, nodes: int, text: str, said: str) -> None:
    given_pool = parse_pool(text) if text else None
    many = [node(f"n{number}") for number in range(nodes)]
    with pytest.raises(InputError, match=said):
        plan_pool(Interface("eth1", "", IPv4Interface(interface)), many, given_pool)


def test_a_pool_leaves_nodes_alone() -> None:
    with pytest.raises(InputError, match=r"contains 10\.0\.0\.7, the address of node a"):
        plan_pool(WIRE, [node("a", "10.0.0.7")], parse_pool("10.0.0.5,10.0.0.9"))


@given(
    prefix=st.integers(8, 29),
    server=st.integers(1, 2**24 - 2),
    taken=st.sets(st.integers(0, 2**24 - 1), max_size=20),
)
def test_a_planned_pool_is_free_and_inside(prefix: int, server: int, taken: set[int]) -> None:
    size = 2 ** (32 - prefix)
    interface = Interface(
        "w", "", IPv4Interface(f"{IPv4Address(10 << 24 | server % (size - 2) + 1)}/{prefix}")
    )
    used = {
        interface.server,
        *(interface.network.network_address + number % size for number in taken),
    }
    first, last = longest_free(interface.network, used)
    if int(last) - int(first) > 0:
        assert (
            interface.network.network_address < first <= last < interface.network.broadcast_address
        )
        assert not any(first <= address <= last for address in used)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("10.0.1.9", "is not in 10.0.0.0/24, the subnet of eth1"),
        ("10.0.0.255", "is not in 10.0.0.0/24"),
        ("10.0.0.1", "is this server's own address"),
    ],
)
def test_a_node_must_be_on_the_wire(address: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        check_node_addresses(WIRE, (node("a", address), node("b", "10.0.0.9")), "nodes.yaml")
    assert caught.value.faults[0].where == "nodes.yaml: nodes.a.address"
