# SPDX-License-Identifier: Apache-2.0
"""Names in DNS come from nodes.yaml alone, whatever machines on the wire call themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from imagebuilder.process import run
from tests.integration.wire_room import CHECKOUT, MAC, SERVER, Room, wire_room

pytestmark = pytest.mark.root

FIXED, POOLED, RENAMED = MAC, "52:54:00:77:00:02", "52:54:00:77:00:03"
ADDRESS = "10.77.0.60"
NODES = f"""\
nodes:
  node0: {{macs: ["{FIXED}"], profile: generic, address: {ADDRESS}}}
  node1: {{macs: ["{POOLED}"], profile: generic}}
  node2: {{macs: ["{RENAMED}"], profile: generic}}
"""
STRANGER = "52:54:00:77:00:9"
# What strangers call themselves, in option 12 and in option 81 (RFC 4702).
CLAIMS = (
    ("wpad", ""),
    ("node0", ""),
    ("node1", "node1.nodes"),
    ("localhost", "localhost"),
    ("server", "server.nodes"),
    ("", "wpad.nodes"),
    ("isatap", "isatap"),
)


def lease(room: Room, mac: str, *names: str) -> str:
    """A machine takes a lease; its address."""
    argv = [sys.executable, "-m", "tests.integration.dhcp_lease", "wire1", mac, *names]
    return run(room.at(room.client, argv), cwd=CHECKOUT).stdout.strip()


def resolve(room: Room, *names: str) -> list[str]:
    """What our DNS says of each name."""
    argv = [sys.executable, "-m", "tests.integration.dns_client", SERVER, *names]
    return run(room.at(room.client, argv), cwd=CHECKOUT).stdout.splitlines()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A wire with three nodes, where an older version has left a stranger's name in the leases."""
    with wire_room(tmp_path_factory.mktemp("names")) as room:
        room.tree.nodes_file.write_text(NODES)
        # All but the first have had an address: dnsmasq tries a new one for three seconds.
        old = [f"{STRANGER}{number} 10.77.0.{230 + number} *" for number in range(1, len(CLAIMS))]
        old += [f"{STRANGER}8 10.77.0.240 wpad", f"{RENAMED} 10.77.0.241 old"]
        (room.tree.serve / "leases").write_text("".join(f"4102444800 {one} *\n" for one in old))
        with room.serving():
            yield room


def test_strangers_have_no_names(served: Room) -> None:
    for number, names in enumerate(CLAIMS):
        address = lease(served, f"{STRANGER}{number}", *names)
        assert resolve(served, address) == ["unknown"], names
    known = {"node0": ADDRESS, "server": SERVER}
    for name in {word for names in CLAIMS for word in names if word}:
        for asked in (name, f"{name.removesuffix('.nodes')}.nodes"):
            wanted = known.get(asked.removesuffix(".nodes"))
            (said,) = resolve(served, asked)
            assert said == (f"found {wanted}" if wanted else "unknown"), asked


def test_names_in_old_leases_are_forgotten(served: Room) -> None:
    assert resolve(served, "wpad", "wpad.nodes", "old.nodes") == ["unknown"] * 3
    assert resolve(served, "10.77.0.240") == ["unknown"]


def test_nodes_have_the_names_of_nodes_yaml(served: Room) -> None:
    assert resolve(served, "node1.nodes") == ["unknown"]  # it has no address yet
    for claimed in ((), ("wpad", "wpad.nodes"), ("node0",)):
        address = lease(served, POOLED, *claimed)
        assert resolve(served, "node1", "node1.nodes") == [f"found {address}"] * 2
        assert resolve(served, address) == ["found node1.nodes"]
        assert resolve(served, "wpad", "node0.nodes") == ["unknown", f"found {ADDRESS}"]
    assert lease(served, FIXED, "wpad") == ADDRESS
    assert resolve(served, "node0", ADDRESS, "wpad") == [
        f"found {ADDRESS}", "found node0.nodes", "unknown",
    ]  # fmt: skip
