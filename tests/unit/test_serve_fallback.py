# SPDX-License-Identifier: Apache-2.0
"""What `serve` does each second about nodes that fail twice, with a real connection to ssh."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from imagebuilder.nodes.config import read_served
from imagebuilder.nodes.evidence.boots import read_boots
from imagebuilder.nodes.files import update_nodes
from imagebuilder.nodes.load import load_nodes
from imagebuilder.serve.foreground import RunningDaemons, fall_back, take_in_reports
from imagebuilder.serve.show import Screen
from imagebuilder.serve.ssh_probe import SshProbes
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.ui import Ui
from tests.integration.published import memory_folder
from tests.unit.nodes_world import move_channel
from tests.unit.test_serve_render import FULL
from tests.unit.web_log import boots

MAC, HERE = "52:54:00:77:00:01", "127.0.0.1"
SECONDS = 20.0


@pytest.fixture
def tree() -> Iterator[Tree]:
    with memory_folder() as top:
        made = make_tree(top / "tree")
        made.nodes_file.write_text(f"nodes:\n  n1:\n    macs: ['{MAC}']\n    profile: demo\n")
        for version in ("1", "2", "3"):
            made.release(ReleaseName("demo", version)).mkdir(parents=True)
        move_channel(made, "demo", "stable", "1")
        update_nodes(made)
        yield made


@pytest.fixture
def port() -> Iterator[int]:
    """The port of an ssh server as far as its first words."""
    with socket.create_server((HERE, 0)) as door:

        def greet() -> None:
            while True:
                try:
                    line, _ = door.accept()
                except OSError:
                    return
                with line:
                    line.sendall(b"SSH-2.0-node\r\n")

        threading.Thread(target=greet, daemon=True).start()
        yield door.getsockname()[1]
        door.shutdown(socket.SHUT_RDWR)


def leads_to(tree: Tree) -> str:
    served = read_served(tree, MAC)
    assert served
    return served.version or served.channel


def turn(server: RunningDaemons, until: str) -> None:
    """Do what `serve` does each second, until the node's script leads there."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        take_in_reports(server)
        fall_back(server)
        if leads_to(server.config.tree) == until:
            return
        time.sleep(0.05)
    raise AssertionError(f"{leads_to(server.config.tree)}, not {until}")


def test_the_script_follows_what_became_of_the_boots(tree: Tree, port: int) -> None:
    said = io.StringIO()
    ui, config = Ui(said), replace(FULL, tree=tree, folder=tree.serve / "foreground")
    server = RunningDaemons(config, ui, Screen(ui, load_nodes(tree)), ExitStack())
    server.boot_probes = SshProbes(time.monotonic, port)
    boots(tree, MAC, "demo/1", time="2026-11-20T12:00:00+00:00", address=HERE)
    deadline = time.monotonic() + SECONDS
    while "n1" not in read_boots(tree) or not read_boots(tree)["n1"].confirmed:
        assert time.monotonic() < deadline
        turn(server, "stable")
    # Nobody listens on the port of the next two boots.
    server.boot_probes = SshProbes(time.monotonic, 9)
    move_channel(tree, "demo", "stable", "2")
    boots(tree, MAC, "demo/2", time="2026-11-20T12:05:00+00:00", address=HERE)
    turn(server, "stable")
    boots(tree, MAC, "demo/2", time="2026-11-20T12:10:00+00:00", address=HERE)
    turn(server, "1")
    assert said.getvalue().count("n1 fell back from 2: 2 boots of it did not become ready") == 1
    assert "it boots 1" in said.getvalue()
    move_channel(tree, "demo", "stable", "3")
    turn(server, "stable")
    # The second boot was only late.
    move_channel(tree, "demo", "stable", "2")
    turn(server, "1")
    server.boot_probes = SshProbes(time.monotonic, port)
    turn(server, "stable")
    assert read_boots(tree)["n1"].confirmed == ("demo@2", "demo@1")
