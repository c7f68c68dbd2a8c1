# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder nodes`, as it is typed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from imagebuilder.cli.nodes import nodes_app
from imagebuilder.errors import InputError
from imagebuilder.settings import Settings
from imagebuilder.tree import Tree
from tests.commands import context_of
from tests.unit.nodes_world import MAC1, MAC2, node_tree

Call = Callable[..., Result]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return node_tree(tmp_path)


@pytest.fixture
def said() -> io.StringIO:
    """What the program said on stderr."""
    return io.StringIO()


@pytest.fixture
def nodes(tree: Tree, said: io.StringIO) -> Call:
    """`nodes(*words)` on the tree; faults are raised."""
    settings = Settings(tree.path, tree.path, tree.path, tree.path / "site.yaml")

    def call(*words: str) -> Result:
        env = {"IMAGEBUILDER_TREE": str(tree.path), "COLUMNS": "100"}
        return CliRunner().invoke(
            nodes_app, words, obj=context_of(settings, said), env=env, catch_exceptions=False
        )

    return call


def test_a_node_is_added_listed_shown_changed_and_removed(nodes: Call, tree: Tree) -> None:
    added = nodes("add", "node1", "--mac", MAC1, "--mac", MAC2, "--profile", "generic",
                  "--address", "10.0.0.1", "--console", "ttyS1", "--cmdline", "quiet",
                  "--cmdline", "a=1", "--var", "rank=3")  # fmt: skip
    assert added.stdout.startswith("node1: added\n  macs: 52:54:00:77:00:01 52:54:00:77:00:02\n")
    assert nodes("list").stdout.splitlines() == [
        "node   boots           address   MAC addresses                        group",
        f"node1  generic/stable  10.0.0.1  {MAC1} {MAC2}  -",
    ]
    shown = nodes("show", "node1").stdout
    assert "boots now    v1\n" in shown
    assert "booted last  never, according to this tree\n" in shown
    assert f"ssh -o UserKnownHostsFile={tree.serve}/known_hosts compute@node1\n" in shown
    changed = nodes("set", "node1", "--version", "v2", "--root", "http", "--unset", "address")
    assert changed.stdout == (
        "node1: changed, effective at the next boot\n  channel: stable -> -\n  version: - -> v2\n"
        "  address: 10.0.0.1 -> -\n  root: - -> http\n"
    )
    assert nodes("remove", "node1").stdout == "node1: removed\n"
    assert nodes("list").stdout.startswith("no nodes yet: ")
    assert nodes("remove", "node1", "--forget").stdout == "node1: forgotten\n"


def test_many_nodes_are_changed_at_once(nodes: Call) -> None:
    for number in range(1, 4):
        nodes("add", f"node{number}", "--mac", f"52:54:00:77:00:0{number}", "--profile", "generic")
    nodes("set", "node3", "--version", "v2")
    changed = nodes("set", "node[1-3]", "--channel", "candidate")
    assert changed.stdout == (
        "node[1-2]: changed, effective at the next boot\n  channel: stable -> candidate\n"
        "node3: changed, effective at the next boot\n  channel: - -> candidate\n"
        "  version: v2 -> -\n"
    )
    said = json.loads(nodes("set", "@all!node3", "node3", "--channel", "stable", "--json").stdout)
    assert [each["after"]["name"] for each in said] == ["node1", "node2", "node3"]
    assert {each["before"]["channel"] for each in said} == {"candidate"}


@pytest.mark.parametrize(
    ("words", "what"),
    [(("node[1-2]", "--address", "10.0.0.1"), "10.0.0.1"),
     (("node[1-2]", "--mac", MAC2), MAC2),
     (("node[1-3]", "--channel", "candidate"), 'no node named "node3"'),
     (("@grop", "--channel", "candidate"), 'no group or label named "grop"')],
)  # fmt: skip
def test_a_change_of_many_nodes_is_made_for_all_or_none(
    nodes: Call, tree: Tree, words: tuple[str, ...], what: str
) -> None:
    nodes("add", "node1", "--mac", MAC1, "--profile", "generic")
    nodes("add", "node2", "--mac", "52:54:00:77:00:09", "--profile", "generic")
    before = tree.nodes_file.read_text()
    with pytest.raises(InputError, match=re.escape(what)):
        nodes("set", *words)
    assert tree.nodes_file.read_text() == before


def test_json_is_whole(nodes: Call, tree: Tree) -> None:
    words = ("--mac", MAC1, "--profile", "generic", "--address", "10.0.0.1", "--static", "--json")
    added = json.loads(nodes("add", "node1", *words).stdout)
    assert added["before"] is None
    listed = json.loads(nodes("list", "--json").stdout)
    assert listed == [added["after"]]
    seen = {
        "mac": MAC1, "node": "node1", "profile": "generic", "version": "v0", "address": "10.0.0.1",
        "stage": "switch-root", "root": "nfs", "first": "2026-01-01T00:00:00+00:00",
        "last": "2026-01-01T00:00:00+00:00", "given": "0123456789abcdef", "pci": "",
        "health": None,
    }  # fmt: skip
    tree.seen(MAC1).write_text(json.dumps(seen))
    shown = json.loads(nodes("show", "node1", "--json").stdout)
    machine_id = (tree.kept_node("node1") / "machine-id").read_text().strip()
    assert {key: shown[key] for key in listed[0]} == listed[0]
    assert shown["seen"] == seen
    assert shown["boots"] == "v1"
    assert shown["kernel-cmdline"] == [
        "ip=dhcp", "quiet", f"root=nfs4:${{server}}:{tree.roots}/generic/v1",
        "imagebuilder.report=${report}/generic/v1", "console=tty0", "console=ttyS0,115200",
        "systemd.hostname=node1", f"systemd.machine_id={machine_id}", f"ifname=boot0:{MAC1}",
        "ip=10.0.0.1::${netX/gateway}:${netX/netmask}:node1:boot0:off", "${node-dns}",
    ]  # fmt: skip


def test_a_node_that_would_boot_into_nothing_is_told(
    nodes: Call, tree: Tree, said: io.StringIO
) -> None:
    nodes("add", "node1", "--mac", MAC1, "--profile", "generic")
    tree.channel("generic", "stable").unlink()
    nodes("list")
    assert "warning: " in said.getvalue()
    assert "generic has no stable release" in said.getvalue()
    shown = nodes("show", "node1").stdout
    assert "boots now    nothing: generic/stable does not exist\n" in shown
    assert "kernel command line" not in shown


def test_what_is_wrong_is_raised(nodes: Call) -> None:
    with pytest.raises(InputError, match="is not a MAC address"):
        nodes("add", "node1", "--mac", "zz", "--profile", "generic")
    with pytest.raises(InputError, match='unknown node "node1"'):
        nodes("show", "node1")
    with pytest.raises(InputError, match="no nodes yet"):
        nodes("set", "node1", "--group", "gpu")
    for many in ("node[1-3]", "@gpu", "node1,node2"):
        with pytest.raises(InputError, match="name one node; only nodes set"):
            nodes("remove", many)
    assert nodes("add", "node1").exit_code == 2
