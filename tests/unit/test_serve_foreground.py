# SPDX-License-Identifier: Apache-2.0
"""What `serve` does each second about nodes.yaml."""

from __future__ import annotations

import errno
import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.boots import FellBack, NodeBoots, write_boots
from imagebuilder.nodes.evidence.seen import read_seen
from imagebuilder.nodes.files import update_nodes
from imagebuilder.nodes.load import load_nodes
from imagebuilder.plain import stamp_of
from imagebuilder.serve import foreground
from imagebuilder.serve.foreground import (
    ROTATION,
    RunningDaemons,
    apply_changed_nodes,
    fall_back,
    take_in_reports,
)
from imagebuilder.serve.rotate import AT_LAST, MOST_REPORTS
from imagebuilder.serve.show import Screen
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui
from tests.unit.nodes_world import MAC1, MAC2, node_tree
from tests.unit.test_serve_render import FULL
from tests.unit.web_log import boots, report_line, secret_of, write_log

ONE = f"nodes:\n  n1: {{macs: ['{MAC1}'], profile: generic}}\n"
TWO = f"{ONE}  n2: {{macs: ['{MAC2}'], profile: generic}}\n"


@pytest.fixture
def reloaded(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What the daemons were told to read again."""
    found: list[Sequence[str]] = []
    monkeypatch.setattr(foreground, "reload_changed", lambda _, changed: found.append(changed))
    monkeypatch.setattr(foreground, "restart", lambda *_: None)
    return found


@pytest.fixture
def server(tmp_path: Path, reloaded: list[Sequence[str]]) -> RunningDaemons:
    tree = node_tree(tmp_path)
    tree.nodes_file.write_text(TWO)
    update_nodes(tree)
    config = replace(FULL, tree=tree, folder=tree.serve / "foreground")
    screen = Screen(Ui(io.StringIO()), load_nodes(tree))
    made = RunningDaemons(
        config, Ui(io.StringIO()), screen, ExitStack(), stamp=stamp_of(config.tree.nodes_file)
    )
    apply_changed_nodes(made)
    assert not reloaded
    return made


def served(tree: Tree) -> list[str]:
    return sorted(mac for mac in (MAC1, MAC2) if (tree.served_node(mac) / "boot.ipxe").is_file())


def names(server: RunningDaemons) -> list[str]:
    return [node.name for node in server.screen.nodes.nodes]


def test_a_change_is_applied(server: RunningDaemons, reloaded: list[Sequence[str]]) -> None:
    tree = server.config.tree
    tree.nodes_file.write_text(ONE)
    apply_changed_nodes(server)
    assert (names(server), served(tree), len(reloaded)) == (["n1"], [MAC1], 1)
    apply_changed_nodes(server)
    assert len(reloaded) == 1


def test_an_empty_file_removes_nobody(
    server: RunningDaemons, reloaded: list[Sequence[str]]
) -> None:
    """As an editor leaves it that empties a file, and then finds the disk full."""
    tree = server.config.tree
    tree.nodes_file.write_bytes(b"")
    for _ in range(2):
        apply_changed_nodes(server)
    assert (names(server), served(tree), reloaded) == (["n1", "n2"], [MAC1, MAC2], [])
    assert isinstance(server.ui.stream, io.StringIO)
    said = server.ui.stream.getvalue()
    assert said.count("could not apply nodes.yaml") == 1
    assert "is empty" in said
    assert "write `nodes: {}` to remove all nodes" in said
    tree.nodes_file.write_text("nodes: {}\n")
    apply_changed_nodes(server)
    assert (names(server), served(tree)) == ([], [])


def test_a_node_that_boots_before_it_is_taken_over_keeps_its_ticket(server: RunningDaemons) -> None:
    """`nodes add` writes its script at once, and the daemons get to know it two turns later."""
    tree, mac = server.config.tree, "52:54:00:77:00:03"
    tree.nodes_file.write_text(f"{TWO}  n3: {{macs: ['{mac}'], profile: generic}}\n")
    update_nodes(tree)
    boots(tree, mac, "generic/v1", name="third", address="192.0.2.3")
    take_in_reports(server)
    seen = read_seen(tree.seen(mac))
    assert seen
    assert (seen.node, seen.stage) == ("n3", "switch-root")
    # Half of it is there, and another node boots.
    tree.nodes_file.write_text(ONE)
    boots(tree, MAC2, "generic/v1", address="192.0.2.2")
    take_in_reports(server)
    assert (seen := read_seen(tree.seen(MAC2)))
    assert seen.node == "n2"


def test_the_ticket_of_a_node_that_is_not_taken_over_yet_stays(server: RunningDaemons) -> None:
    tree, mac = server.config.tree, "52:54:00:77:00:03"
    tree.nodes_file.write_text(f"{TWO}  n3: {{macs: ['{mac}'], profile: generic}}\n")
    boots(tree, mac, "generic/v1", name="third", address="192.0.2.3")
    take_in_reports(server)
    boots(tree, MAC2, "generic/v1", address="192.0.2.2")
    take_in_reports(server)
    uri = f"/report/{secret_of('third')}/generic/v1?stage=ready&node={mac}"
    write_log(tree, report_line(uri, address="192.0.2.3"))
    take_in_reports(server)
    assert (seen := read_seen(tree.seen(mac)))
    assert seen.stage == "ready"


def test_a_flood_of_reports_reloads_the_web_server_once_a_minute(server: RunningDaemons) -> None:
    """Each reload starts new workers, and who takes an answer slowly keeps the old ones."""
    tree, large, seen = server.config.tree, AT_LAST * MOST_REPORTS, list[int]()
    for number in range(6):
        with tree.reports_log.open("ab") as stream:
            stream.truncate(large)
        if number == 4:
            server.rotated -= ROTATION
        take_in_reports(server)
        seen.append(tree.reports_log.stat().st_size)
    assert seen == [0, large, large, large, 0, large]


def test_what_a_full_disk_kept_from_being_served_is_tried_again(
    server: RunningDaemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node boots what it is to boot again: nothing in the records of boots will change."""
    tree = server.config.tree
    server.fallbacks = {"n1": FellBack(ReleaseName("generic", "v2"), "v1", 2)}
    write_boots(tree, {"n1": NodeBoots("n1")})
    tries: list[Tree] = []

    def fill_once(tree: Tree) -> None:
        tries.append(tree)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(foreground, "update_nodes", fill_once)
    for _ in range(3):
        fall_back(server)
    assert len(tries) == 2
    assert not server.fallbacks
