# SPDX-License-Identifier: Apache-2.0
"""One address is listened on, and it is none that nodes reach."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError
from imagebuilder.settings import DEFAULT_LISTEN
from imagebuilder.tree import Tree, make_tree
from imagebuilder.web.listen import open_socket, parse_listen
from imagebuilder.web.node_networks import find_node_networks, is_of_nodes
from imagebuilder.web.run import find_hosts

NODES = (IPv4Network("192.168.77.0/24"), IPv6Network("fd77::/64"), IPv6Network("fe80::/64"))
WHO = ("known", "!known")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (DEFAULT_LISTEN, ("127.0.0.1", 8470)),
        ("10.0.0.5", ("10.0.0.5", 8470)),
        ("10.0.0.5:80", ("10.0.0.5", 80)),
        ("fd00::5", ("fd00::5", 8470)),
        ("[fd00::5]", ("fd00::5", 8470)),
        ("[fd00::5]:81", ("fd00::5", 81)),
    ],
)
def test_an_address_and_a_port(text: str, found: tuple[str, int]) -> None:
    assert parse_listen(text, NODES) == found


@pytest.mark.parametrize(
    "text", ["", "localhost", "10.0.0.5:0", "10.0.0.5:65536", "10.0.0.5:x", "10.0.0.5:٣", ":80",
             "10.0.0.5:080000"]
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError, match="is not ADDRESS:PORT"):
        parse_listen(text, NODES)


@pytest.mark.parametrize("text", ["0.0.0.0", "0.0.0.0:80", "[::]:80", "::", "::ffff:0.0.0.0"])
def test_every_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="every address"):
        parse_listen(text, NODES)


@pytest.mark.parametrize(
    "text",
    ["192.168.77.1", "[::ffff:192.168.77.1]:80", "fd77::1", "[fd77:0::5]:80", "[fe80::1%eth0]"],
)
def test_the_address_of_the_nodes_interface_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="nodes' network"):
        parse_listen(text, NODES)


def test_the_networks_are_those_that_serve_was_given(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    assert find_node_networks(tree) == ()
    # Nobody serves nodes on the loopback interface, so no network of this host is found by it.
    configure(tree, "foreground", "interface=lo")
    configure(tree, "installed", "interface=gone0")
    assert find_node_networks(tree) == ()


def test_the_network_is_known_before_its_interface_has_an_address(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    lines = [f"dhcp-range=tag:{who},10.77.0.128,10.77.0.254,255.255.255.0,9m" for who in WHO]
    configure(tree, "installed", "interface=gone0", *lines)
    configure(tree, "foreground", "interface=gone1", "dhcp-range=10.78.0.0,proxy,255.255.254.0")
    assert [str(one) for one in find_node_networks(tree)] == ["10.77.0.0/24", "10.78.0.0/23"]


def test_a_network_that_was_only_checked_is_not_that_of_nodes(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    configure(tree, "checked", "dhcp-range=10.78.0.0,proxy,255.255.254.0")
    assert find_node_networks(tree) == ()


def configure(tree: Tree, folder: str, *lines: str) -> None:
    (tree.serve / folder).mkdir()
    text = "".join(f"{line}\n" for line in ("# ours", *lines, "bind-interfaces"))
    (tree.serve / folder / "dnsmasq.conf").write_text(text)


def test_addresses_of_others_are_not_of_nodes() -> None:
    assert not is_of_nodes("192.168.78.1", NODES)
    assert not is_of_nodes("fd00::1", NODES)
    assert not is_of_nodes("testclient", NODES)
    assert not is_of_nodes("192.168.77.1", ())


def test_a_port_that_is_taken() -> None:
    with open_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert first.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        with pytest.raises(HostError, match="cannot listen"):
            open_socket("127.0.0.1", port)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Cluster.Example.com", "cluster.example.com"), ("head_1", "head_1"), ("10.0.0.5", "10.0.0.5"),
     ("fd00::5", "fd00::5"), ("[FD00::5]", "fd00::5"), ("::1", "::1")],
)  # fmt: skip
def test_more_names_that_are_answered_to(text: str, name: str) -> None:
    found = find_hosts("10.0.0.5", (text,))
    assert found[-1] == name
    assert {"10.0.0.5", "localhost", socket.gethostname()} <= {*found}


@pytest.mark.parametrize(
    "text",
    ["", "a.example:8443", "abc:80", "https://a.example", "a.example/x", "*.example", "a b", "a,b",
     "[]", "-x", "a@b"],
)  # fmt: skip
def test_what_no_host_header_has_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not the name of a host"):
        find_hosts("10.0.0.5", (text,))
