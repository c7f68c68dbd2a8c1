# SPDX-License-Identifier: Apache-2.0
"""A node that was told to send its console, and sent nothing of a whole boot."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.decode import encode_box
from imagebuilder.fleet.overview import SILENT, find_warnings, overview
from imagebuilder.nodes.config import NodeConfig
from imagebuilder.nodes.evidence.boots import NodeBoots, write_boots
from imagebuilder.nodes.evidence.seen import Seen, write_seen
from imagebuilder.nodes.load import load_nodes
from imagebuilder.tree import Tree
from tests.unit.nodes_world import MAC1, node_tree

NOW = datetime.now(UTC).replace(microsecond=0)
BEGUN = NOW - timedelta(hours=2)
TOLD = NodeConfig(("quiet", "imagebuilder.netconsole=6666"), "", {})
UNTOLD = NodeConfig(("quiet",), "", {})
SEEN = Seen(
    MAC1, "n1", "generic", "v1", "192.0.2.5", "switch-root", "nfs",
    BEGUN.isoformat(), (BEGUN + timedelta(minutes=1)).isoformat(), TOLD.name,
)  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A node that booted two hours ago, was told to send its console, and sent nothing."""
    made = node_tree(tmp_path)
    made.nodes_file.write_text(
        f"nodes:\n  n1: {{macs: ['{MAC1}'], profile: generic, netconsole: true}}\n"
    )
    made.node_configs.mkdir()
    for config in (TOLD, UNTOLD):
        (made.node_configs / f"{config.name}.json").write_text(json.dumps(encode_box(config)))
    write_boots(made, {"n1": NodeBoots("n1", asked=BEGUN.isoformat())})
    write_seen(made, SEEN)
    return made


def warnings(tree: Tree, seen: Seen | None = SEEN) -> tuple[str, ...]:
    return find_warnings(tree, load_nodes(tree).nodes, {"n1": seen}).get("n1", ())


def hear(tree: Tree, at: datetime) -> None:
    """A line of its console came at a time."""
    path = tree.consoles("n1") / "20261123T000000Z.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[    0.000000] Linux version 6.12\n")
    os.utime(path, (at.timestamp(), at.timestamp()))


def test_a_whole_boot_without_a_word_is_a_warning_everywhere(tree: Tree) -> None:
    assert warnings(tree) == (SILENT,)
    hear(tree, BEGUN - timedelta(minutes=1))  # of the boot before
    assert warnings(tree) == (SILENT,)
    (view,) = overview(tree, load_nodes(tree).nodes)
    assert view.row(NOW)[-1].endswith(f"; {SILENT}")
    assert view.as_json()["warnings"] == [SILENT]


def test_a_word_since_the_boot_began_is_enough(tree: Tree) -> None:
    hear(tree, BEGUN + timedelta(seconds=9))
    assert warnings(tree) == ()


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(None, id="it never reported"),
        pytest.param(replace(SEEN, stage="root"), id="its boot is not over"),
        pytest.param(replace(SEEN, stage="failed"), id="its boot failed"),
        pytest.param(replace(SEEN, given=UNTOLD.name), id="it booted before it was told to"),
        pytest.param(replace(SEEN, given=""), id="nobody knows what it was told"),
        pytest.param(replace(SEEN, last=(BEGUN - timedelta(days=1)).isoformat()), id="it boots"),
    ],
)
def test_nothing_is_said_where_nothing_had_to_come(tree: Tree, seen: Seen | None) -> None:
    assert warnings(tree, seen) == ()


def test_nothing_is_said_of_a_node_that_sends_none(tree: Tree) -> None:
    text = tree.nodes_file.read_text()
    tree.nodes_file.write_text(text.replace("netconsole: true", "netconsole: false"))
    assert warnings(tree) == ()
