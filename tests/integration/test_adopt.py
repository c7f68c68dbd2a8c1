# SPDX-License-Identifier: Apache-2.0
"""From a stranger's DHCP question to a node, with the real daemons on a wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from imagebuilder.image.types import encode_image
from imagebuilder.program import Program
from imagebuilder.recipe.types import Hardware
from imagebuilder.tree import ReleaseName
from tests.images import IMAGE
from tests.integration.started import wait_until
from tests.integration.wire_room import COMMAND, MAC, Room, wire_room
from tests.unit.nodes_world import move_channel

pytestmark = pytest.mark.root

STRANGER, OTHER = "52:54:00:77:00:99", "52:54:00:77:00:98"
NODES = f'nodes:\n  node1: {{macs: ["{MAC}"], profile: rx}}  # mine\n'
CARD = "1002:7480"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Room, Program]]:
    """A wire with one node and a release for a card."""
    with wire_room(tmp_path_factory.mktemp("adopt")) as room:
        release = room.tree.release(ReleaseName("rx", "1"))
        release.mkdir(parents=True)
        image = replace(IMAGE, profile="rx", version="1", hardware=(Hardware(CARD, "RX 7600"),))
        (release / "manifest.json").write_text(encode_image(image))
        move_channel(room.tree, "rx", "stable", "1")
        room.tree.nodes_file.write_text(NODES)
        with room.serving() as started:
            yield room, started


def typed(room: Room, *words: str) -> str:
    """What a command says on stdout, as typed at the server."""
    done = room.at_server(*COMMAND, *words, "--tree", room.tree.path)
    assert done.status == 0, done.stderr
    return done.stdout


def found(room: Room) -> dict[str, dict[str, object]]:
    machines = json.loads(typed(room, "discover", "--json"))
    return {machine["mac"]: machine for machine in machines}


def test_a_stranger_asks_reports_its_card_and_is_adopted(served: tuple[Room, Program]) -> None:
    room, _ = served
    for mac, architecture in ((MAC, 7), (STRANGER, 7), (OTHER, 0)):
        room.ask(architecture, mac=mac)
    wait_until(lambda: len(found(room)) == 2, "not both strangers are listed, or the node is")
    machine = found(room)[STRANGER]
    assert (machine["firmware"], machine["pci"], machine["profiles"]) == ("UEFI", None, [])
    assert str(machine["vendor"]).startswith("PXEClient:Arch:00007")
    assert found(room)[OTHER]["firmware"] == "BIOS"

    # As the initrd of what it chose in the menu reports.
    told = f"/report/rx/1?stage=switch-root&uptime=9.1&pci={CARD}&node={STRANGER}"
    assert room.fetch(told).stdout.startswith("HTTP/1.1 204 ")
    wait_until(lambda: found(room)[STRANGER]["pci"] == [CARD], "its card is not known")
    assert "Radeon RX 7600" in typed(room, "discover")

    assert typed(room, "adopt", STRANGER).startswith(f"node2: added\n  macs: {STRANGER}\n")
    text = room.tree.nodes_file.read_text()
    assert text == f"{NODES}  node2:\n    macs: [{STRANGER}]\n    profile: rx\n"
    assert {*found(room)} == {OTHER}
    served_node = room.tree.served_node(STRANGER) / "boot.ipxe"
    assert "systemd.hostname=node2" in served_node.read_text()


def test_what_serve_itself_asks_is_no_machine(served: tuple[Room, Program]) -> None:
    room, _ = served
    before = {*found(room)}
    # From the other end, as an imagebuilder of another control node would.
    asks = (
        "from ipaddress import IPv4Interface; from imagebuilder.serve import discover, interface;"
        "end = interface.Interface('wire1', '', IPv4Interface('10.77.0.50/24'));"
        "print(len(discover.find_dhcp_servers(end)))"
    )
    done = room.at_client(COMMAND[0], "-c", asks)
    assert done.stdout == "1\n", done.stderr
    room.ask(7, mac="52:54:00:77:00:97")  # noted after it, so the question was too
    wait_until(lambda: "52:54:00:77:00:97" in found(room), "a machine that asked is not listed")
    assert {*found(room)} == before | {"52:54:00:77:00:97"}
