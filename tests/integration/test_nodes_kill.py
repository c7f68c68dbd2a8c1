# SPDX-License-Identifier: Apache-2.0
"""Nodes are changed by commands that are killed, that run at once, and on a disk that is full."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from imagebuilder.environment import base_environment
from imagebuilder.errors import HostError
from imagebuilder.nodes.edit import NodeEdit, add_node, set_nodes
from imagebuilder.nodes.files import update_nodes
from imagebuilder.nodes.identity import KEY, MACHINE_ID, PUBLIC
from imagebuilder.nodes.load import load_nodes
from imagebuilder.process import run
from imagebuilder.tree import Tree
from tests.integration.started import PATIENCE, Started, start
from tests.sampling import times
from tests.unit.nodes_world import MAC1, MAC2, node_tree

pytestmark = pytest.mark.root

CHECKOUT = Path(__file__).parents[2]
KILLS = times(30, 200)
# What `imagebuilder nodes` calls, without the second that Typer takes to start.
EDIT = """\
import sys
from pathlib import Path
from imagebuilder.nodes.edit import NodeEdit, add_node, remove_node, set_nodes
from imagebuilder.tree import Tree
tree, action, name, mac = Tree(Path(sys.argv[1])), *sys.argv[2:5]
print("ready", flush=True)
if action == "add":
    add_node(tree, name, NodeEdit({"macs": [mac], "profile": "generic", "address": "10.0.0.1"}))
elif action == "set":
    set_nodes(tree, lambda _: {name: NodeEdit({"version": mac})})
else:
    remove_node(tree, name, forget=False)
"""


def edit(tree: Tree, folder: Path, *words: str) -> Started:
    """Start a change in a process of its own; it is about to begin."""
    argv = [sys.executable, "-c", EDIT, str(tree.path), *words]
    started = start(argv, base_environment() | {"PYTHONPATH": str(CHECKOUT)}, folder)
    while "ready" not in started.stdout and started.find_end() is None:
        time.sleep(0.001)
    return started


def check_whole(tree: Tree) -> None:
    """Nothing is torn: nodes.yaml reads, and identities are whole."""
    load_nodes(tree)
    for kept in (tree.path / "nodes").iterdir():
        if (kept / KEY).exists():
            public = run(["ssh-keygen", "-y", "-f", kept / KEY]).stdout.split()[:2]
            assert (kept / PUBLIC).read_text().split()[:2] == public
        if (kept / MACHINE_ID).exists():
            assert len((kept / MACHINE_ID).read_text()) == 33


def test_a_change_that_is_killed_is_done_or_not(tmp_path: Path) -> None:
    tree = node_tree(tmp_path)
    add_node(tree, "node1", NodeEdit({"macs": [MAC1], "profile": "generic"}))
    key = (tree.kept_node("node1") / KEY).read_bytes()
    chance = random.Random(7)
    killed = 0
    for number in range(KILLS):
        there = load_nodes(tree).find("node2") is not None
        started = edit(tree, tmp_path / f"{number}", "remove" if there else "add", "node2", MAC2)
        time.sleep(chance.uniform(0, 0.08))
        if started.find_end() is None:
            started.send(signal.SIGKILL)
            killed += started.wait(PATIENCE) == -signal.SIGKILL
        check_whole(tree)
    assert killed > KILLS // 4
    # 1. The next one finds its way, and 2. nothing is left of those before.
    update_nodes(tree)
    assert (tree.kept_node("node1") / KEY).read_bytes() == key
    left = [path for path in tree.path.rglob(".*") if "node2" not in path.parts]
    assert len(left) <= 4, left


def test_changes_at_once_all_happen(tmp_path: Path) -> None:
    tree = node_tree(tmp_path)
    macs = [f"52:54:00:00:01:{number:02x}" for number in range(8)]
    started = [
        start(
            [sys.executable, "-c", EDIT.replace('"address": "10.0.0.1"', ""), str(tree.path),
             "add", f"node{number}", mac],
            base_environment() | {"PYTHONPATH": str(CHECKOUT)},
            tmp_path / f"{number}",
        )
        for number, mac in enumerate(macs)
    ]  # fmt: skip
    assert [each.wait(PATIENCE) for each in started] == [0] * len(macs), started[0].stderr
    nodes = load_nodes(tree)
    assert {node.name for node in nodes.nodes} == {f"node{number}" for number in range(8)}
    assert all((tree.served_node(mac) / "boot.ipxe").exists() for mac in macs)
    assert len((tree.serve / "known_hosts").read_text().splitlines()) == len(macs)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder])
    try:
        tree = node_tree(folder)
        add_node(tree, "node1", NodeEdit({"macs": [MAC1], "profile": "generic"}))
        before = tree.nodes_file.read_bytes()
        own = tree.path / "own"
        own.mkdir()
        with pytest.raises(OSError, match="No space left"):
            (own / "large").write_bytes(bytes(1024**2))
        long = NodeEdit({"version": "v2", "cmdline": ["a=" + "x" * 200] * 4})
        with pytest.raises(HostError, match=r"nodes.yaml: .*No space left.*it is unchanged"):
            set_nodes(tree, lambda _: {"node1": long})
        assert tree.nodes_file.read_bytes() == before
        (own / "large").unlink()
        set_nodes(tree, lambda _: {"node1": NodeEdit({"version": "v2"})})
    finally:
        run(["umount", folder])
