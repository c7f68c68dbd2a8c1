# SPDX-License-Identifier: Apache-2.0
"""The boot server alone takes a node back that fails twice, with the real daemons and ssh probe."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.boots import read_boots
from tests.integration.started import PATIENCE, wait_until
from tests.integration.wire_room import CLIENT, MAC, TICKET, Room, wire_room
from tests.unit.nodes_world import move_channel

pytestmark = pytest.mark.root

NODES = f"""\
nodes:
  n1: {{macs: ["{MAC}"], profile: generic, address: {CLIENT}}}
"""
OLD, NEW, NEXT = (f"2026010{number}000000-abcdef0{number}" for number in (1, 2, 3))
# An ssh server as far as its first words.
GREETER = """\
import socket
door = socket.create_server(("", 22))
print("ready", flush=True)
while True:
    line, _ = door.accept()
    line.sendall(b"SSH-2.0-node\\r\\n")
    line.close()
"""


def boot(room: Room, version: str = "") -> str:
    """Fetch the node's script as iPXE does, and report `version` as its initrd does, if any.

    Returns what the script leads to.
    """
    # Those of one second count as one, and the web server's times are whole seconds.
    second = int(time.time())
    wait_until(lambda: int(time.time()) > second, "time stands still")
    script = room.fetch_script()
    ticket = TICKET.search(script)
    target = re.search(
        r"^chain --autofree \S+?/((?:channels|releases)/\S+)/boot.ipxe", script, re.M
    )
    assert ticket, script
    assert target, script
    if version:
        told = f"/report/{ticket[1]}/generic/{version}"
        room.fetch(f"{told}?stage=switch-root&node={MAC}")
        wait_until(lambda: room.has_noted(told), "the report is not noted")
    return target[1]


def tries(room: Room) -> dict[str, int]:
    record = read_boots(room.tree).get("n1")
    return {**record.tries} if record else {}


def confirmed(room: Room) -> tuple[str, ...]:
    record = read_boots(room.tree).get("n1")
    return record.confirmed if record else ()


def test_a_node_that_fails_twice_is_taken_back_and_gets_the_next_release(tmp_path: Path) -> None:
    with wire_room(tmp_path) as room:
        tree = room.tree
        for version in (OLD, NEW, NEXT):
            (tree.http / "releases/generic" / version).mkdir(parents=True)
        (tree.path / "channels/generic").mkdir()
        move_channel(tree, "generic", "stable", OLD)
        tree.nodes_file.write_text(NODES)
        with room.serving() as started:
            greeter = (sys.executable, "-c", GREETER)
            assert boot(room, OLD) == "channels/generic/stable"
            with room.beside("sshd", room.client, *greeter) as door:
                door.wait_for("^ready", PATIENCE)
                good = (f"generic@{OLD}",)
                wait_until(lambda: confirmed(room) == good, "the good release is not confirmed")
            move_channel(tree, "generic", "stable", NEW)
            # A panic before the network, then one behind the initrd.
            for number, version in enumerate(("", NEW), 1):
                assert boot(room, version) == "channels/generic/stable"
                counted = {f"generic@{NEW}": number}
                wait_until(lambda counted=counted: tries(room) == counted, "not counted")  # type: ignore[misc]
            started.wait_for(rf"n1 fell back from {NEW}: 2 boots .*; it boots {OLD}", PATIENCE)
            assert [boot(room, OLD) for _ in range(3)] == [f"releases/generic/{OLD}"] * 3
            move_channel(tree, "generic", "stable", NEXT)
            script = tree.served_node(MAC) / "boot.ipxe"
            wait_until(lambda: "/channels/" in script.read_text(), "the next is not tried")
            assert boot(room, NEXT) == "channels/generic/stable"
            with room.beside("sshd", room.client, *greeter):
                best = (f"generic@{NEXT}", f"generic@{OLD}")
                wait_until(lambda: confirmed(room) == best, "the next one is not confirmed")
