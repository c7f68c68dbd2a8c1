# SPDX-License-Identifier: Apache-2.0
"""What a hostile machine on the wire reads over NFS, from the real nfs-ganesha."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.usage import NFS_PORT
from tests.integration.started import PATIENCE
from tests.integration.wire_room import CHECKOUT, MAC, SERVER, Room, wire_room

pytestmark = pytest.mark.root

NODES = f"nodes: {{n1: {{macs: ['{MAC}'], profile: generic}}}}\n"
ROOT = "generic/20261101093000-1c2d3e4f"
KEY = "nodes/n1/ssh_host_ed25519_key"
# More than ganesha takes by itself: those of 300 nodes with nconnect=4.
CONNECTIONS = 1200
HOLD = """\
import resource, socket, sys, time
address, port, many = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (many + 100, many + 100))
held = [socket.create_connection((address, port), 60) for _ in range(many)]
print("holding", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with wire_room(tmp_path_factory.mktemp("nfs")) as made:
        made.tree.nodes_file.write_text(NODES)
        place = made.tree.roots / ROOT / "etc"
        place.mkdir(parents=True)
        (place / "shadow").write_text("of the image\n")
        (place / "link").symlink_to(made.tree.path / KEY)
        with made.serving("--nfs", "ganesha"):
            yield made


def read(room: Room, *names: str | Path, user: bool = False) -> list[str | int]:
    how = ["--user"] if user else []
    argv = ["-m", "tests.integration.nfs_client", *how, SERVER, room.tree.roots, *names]
    done = room.at_client(sys.executable, *argv)
    assert done.status == 0, done.stderr
    found: list[str | int] = json.loads(done.stdout)
    return found


def test_the_roots_are_read(room: Room) -> None:
    assert read(room, f"{ROOT}/etc/shadow") == ["of the image\n"]


def test_no_name_leads_out_of_the_roots(room: Room) -> None:
    key = room.tree.path / KEY
    assert "PRIVATE KEY" in key.read_text()
    up = "../" * len(room.tree.roots.parts)
    names = (
        f"../{KEY}", f"{ROOT}/../../../{KEY}", key, f"{ROOT}/etc/link/", "../serve/reports.log",
        "/etc/shadow", f"{up}etc/shadow", f"/old{key}", f"/proc/1/root{key}",
        f"{up}proc/self/root/etc/shadow", CHECKOUT / "LICENSE",
    )  # fmt: skip
    assert [type(each) for each in read(room, *names)] == [int] * len(names)


def test_users_of_a_node_do_not_read_as_its_root(room: Room) -> None:
    assert read(room, f"{ROOT}/etc/shadow", user=True) == [13]


def test_many_nodes_are_connected_at_once(room: Room) -> None:
    words = ("-c", HOLD, SERVER, str(NFS_PORT), str(CONNECTIONS))
    with room.beside("holder", room.client, sys.executable, *words) as started:
        started.wait_for("holding", PATIENCE)
        assert read(room, f"{ROOT}/etc/shadow") == ["of the image\n"]
