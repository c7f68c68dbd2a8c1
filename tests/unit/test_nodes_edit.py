# SPDX-License-Identifier: Apache-2.0
"""Changes of nodes.yaml: only the node's own lines, checked before anything is replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.locks import is_locked
from imagebuilder.nodes import edit
from imagebuilder.nodes.edit import (
    Edited,
    NodeEdit,
    OvertakenError,
    add_node,
    parse_change,
    remove_node,
    set_nodes,
)
from imagebuilder.nodes.files import LOCK
from imagebuilder.nodes.load import load_nodes, resolve_document
from imagebuilder.nodes.show import render_edited
from imagebuilder.nodes.types import Nodes
from imagebuilder.recipe.positions import Document
from imagebuilder.tree import Tree
from tests.unit.nodes_world import MAC1, MAC2, node_tree

MAC3 = "52:54:00:77:00:03"
FILE = f"""\
# who boots what
menu: {{default: local}}   # a table

nodes:
    # the first
    node1:
        macs: [{MAC1}]  # on board
        profile: generic
        # pinned for a while
        version: 'v1'
        vars: {{a: 1}}

    # the second, in the cellar
    node2: {{macs: [{MAC2}], profile: generic}}
    # nothing below
# the end
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = node_tree(tmp_path)
    tree.nodes_file.write_text(FILE)
    return tree


def set_node(tree: Tree, name: str, change: NodeEdit) -> Edited:
    (edited,) = set_nodes(tree, lambda _: {name: change})
    return edited


def change(**keys: bool | str | list[str]) -> NodeEdit:
    return NodeEdit(keys)


def test_a_new_node_comes_behind_the_last_one(tree: Tree) -> None:
    given = parse_change({"macs": [MAC3], "profile": "rx", "version": "v1"}, ["rank=3"])
    edited = add_node(tree, "node3", given)
    new = f"    node3:\n        macs: [{MAC3}]\n        profile: rx\n        version: v1\n"
    new += "        vars:\n            rank: 3\n"
    second = f"    node2: {{macs: [{MAC2}], profile: generic}}\n"
    assert tree.nodes_file.read_text() == FILE.replace(second, second + new)
    assert edited.before is None
    assert edited.after == load_nodes(tree).find("node3")
    assert (tree.served_node(MAC3) / "boot.ipxe").exists()


def test_the_first_node_of_a_tree(tmp_path: Path) -> None:
    tree = node_tree(tmp_path)
    add_node(tree, "node1", change(macs=[MAC1], profile="generic"))
    assert tree.nodes_file.read_text() == (
        "# Who boots what: imagebuilder nodes --help\n"
        f"nodes:\n  node1:\n    macs: [{MAC1}]\n    profile: generic\n"
    )
    assert tree.nodes_file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "text",
    ["# only words", "menu:\n  default: local # here\n", "nodes: {}\n", "nodes:\n",
     f"nodes: {{x: {{macs: [{MAC2}], profile: generic}}}}\n",
     f"nodes: {{\n  x: {{macs: [{MAC2}], profile: generic}},\n}}\n",
     f"nodes:\n  x:\n    macs: [{MAC2}]\n    profile: generic"],
)  # fmt: skip
def test_a_node_finds_its_place_in_any_file(tree: Tree, text: str) -> None:
    tree.nodes_file.write_text(text)
    before = load_nodes(tree)
    nodes = add_node(tree, "node1", change(macs=[MAC1], profile="generic")).nodes
    assert nodes.nodes[:-1] == before.nodes
    assert nodes.menu == before.menu
    assert nodes.nodes[-1].name == "node1"
    written = tree.nodes_file.read_text()
    assert all(part.strip() in written for part in text.split("#")[1:])
    set_node(tree, "node1", change(address="10.0.0.1"))
    remove_node(tree, "node1", forget=False)
    assert load_nodes(tree) == before


def test_a_change_touches_the_lines_of_its_node_only(tree: Tree) -> None:
    given = parse_change({"channel": "candidate", "address": "10.0.0.1"}, ["b=true"], ["vars.a"])
    edited = set_node(tree, "node1", given)
    old, new = FILE.splitlines(), tree.nodes_file.read_text().splitlines()
    assert old[:6] == new[:6]
    assert old[-5:] == new[-5:]
    assert f"        macs: [{MAC1}]  # on board" in new
    assert edited.after is not None
    assert (edited.after.channel, edited.after.version) == ("candidate", "")
    assert edited.after.vars == (("b", True),)
    assert render_edited(edited.before, edited.after) == (
        "changed, effective at the next boot\n"
        "  channel: - -> candidate\n"
        "  version: v1 -> -\n"
        "  address: - -> 10.0.0.1\n"
        "  vars: a=1 -> b=true"
    )


def test_a_change_that_changes_nothing_says_so(tree: Tree) -> None:
    edited = set_node(tree, "node2", change(profile="generic"))
    assert render_edited(edited.before, edited.after) == "nothing changed"
    assert tree.nodes_file.read_text() == FILE


@pytest.mark.parametrize("new", [False, True])
def test_what_somebody_saves_meanwhile_is_not_lost(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, *, new: bool
) -> None:
    theirs = [FILE.replace("in the cellar", "in the attic")]

    def resolve(document: Document, tree: Tree) -> Nodes:
        if theirs:
            tree.nodes_file.write_text(theirs.pop())
        return resolve_document(document, tree)

    monkeypatch.setattr(edit, "resolve_document", resolve)
    if new:
        with pytest.raises(OvertakenError, match="was changed by somebody else at the same time"):
            add_node(tree, "node3", change(macs=[MAC3], profile="generic"))
    else:  # it reads what is there now
        set_node(tree, "node2", change(version="v1"))
    text = tree.nodes_file.read_text()
    assert "in the attic" in text
    found = load_nodes(tree).find("node2")
    assert found
    assert found.version == ("" if new else "v1")


def test_a_value_from_an_anchor_elsewhere_is_kept(tree: Tree) -> None:
    tree.nodes_file.write_text(
        f"nodes:\n  a:\n    macs: [{MAC1}]\n    profile: &p generic\n"
        f"  b:\n    macs: [{MAC2}]\n    profile: *p\n"
    )
    edited = set_node(tree, "b", change(address="10.0.0.2"))
    assert edited.after is not None
    assert edited.after.profile == "generic"


def test_a_removed_node_leaves_the_others_comments_alone(tree: Tree) -> None:
    remove_node(tree, "node1", forget=False)
    first = FILE.index("    node1:")
    second = FILE.index("\n    # the second")
    assert tree.nodes_file.read_text() == FILE[:first] + FILE[second:]
    remove_node(tree, "node2", forget=False)
    assert load_nodes(tree).nodes == ()
    assert "# the end" in tree.nodes_file.read_text()


BAD = {
    "MAC of another": (change(macs=[MAC2], profile="generic"), "the MAC address"),
    "malformed MAC": (change(macs=["zz"], profile="generic"), "is not a MAC address"),
    "nothing to boot": (change(macs=[MAC3]), "it has no profile"),
    "no such profile": (change(macs=[MAC3], profile="genric"), 'did you mean "generic"?'),
    "no such version": (change(macs=[MAC3], profile="generic", version="v9"), "available: v1, v2"),
    "no such channel": (change(macs=[MAC3], profile="rx"), "imagebuilder promote rx"),
    "no such group": (change(macs=[MAC3], group="g"), 'unknown group "g"'),
    "no such channel name": (change(macs=[MAC3], profile="rx", channel="x"), "is not one of"),
    "word": (change(macs=[MAC3], profile="generic", cmdline=["${x}"]), "iPXE would expand"),
    "two pins": (change(macs=[MAC3], profile="generic", channel="stable", version="v1"), ""),
}


@pytest.mark.parametrize(("given", "said"), list(BAD.values())[:-1], ids=list(BAD)[:-1])
def test_nothing_is_lost_on_bad_input(tree: Tree, given: NodeEdit, said: str) -> None:
    before = sorted(map(os.fspath, tree.path.rglob("*")))
    with pytest.raises(InputError) as caught:
        add_node(tree, "node3", given)
    assert said in str(caught.value)
    assert tree.nodes_file.read_text() == FILE
    after = {*map(os.fspath, tree.path.rglob("*"))} - {os.fspath(tree.lock(LOCK))}
    assert sorted(after) == before
    assert not is_locked(tree.lock(LOCK))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda tree: add_node(tree, "node1", change(macs=[MAC3])), 'node "node1" already exists'),
        (lambda tree: add_node(tree, "Node", change(macs=[MAC3])), "is not a host name"),
        (lambda tree: add_node(tree, "../x", change(macs=[MAC3])), "is not a host name"),
        (lambda tree: remove_node(tree, "node7", forget=True), "unknown node"),
        (lambda tree: remove_node(tree, "../roots", forget=True), "unknown node"),
        (lambda _: parse_change({}, ["a"]), "is not NAME=VALUE"),
        (lambda _: parse_change({}, [], ["adress"]), 'did you mean "address"?'),
        (lambda tree: set_node(tree, "node1", NodeEdit(variables={"a": {"b": 1}})), "vars.a"),
        (lambda tree: set_node(tree, "node1", NodeEdit(unset=("macs",))), '"macs" is missing'),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(tree: Tree, call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(ImagebuilderError) as caught:
        call(tree)
    assert said in str(caught.value)
    assert tree.nodes_file.read_text() == FILE


def test_a_file_that_is_at_fault_is_not_edited(tree: Tree) -> None:
    tree.nodes_file.write_text(FILE.replace("menu", "men"))
    with pytest.raises(InputError, match=r"nodes.yaml:2:1: men: unknown key"):
        set_node(tree, "node1", change(channel="stable"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=3", 3),
        ("a=007", "007"),
        ("a=true", True),
        ('a=["x"]', ["x"]),
        ("a=x=y", "x=y"),
        ("a=", ""),
    ],
)
def test_a_var_is_json_or_text(text: str, value: object) -> None:
    assert parse_change({}, [text]).variables == {"a": value}


def test_forgetting_takes_the_keys_and_only_those_of_that_node(tree: Tree) -> None:
    key = tree.kept_node("node1") / "ssh_host_ed25519_key"
    add_node(tree, "node3", change(macs=[MAC3], profile="generic"))
    first = key.read_bytes()
    remove_node(tree, "node1", forget=False)
    assert not tree.served_node(MAC1).exists()
    back: Edited = add_node(tree, "node1", change(macs=[MAC1], profile="generic"))
    assert back.after is not None
    assert key.read_bytes() == first
    remove_node(tree, "node1", forget=False)
    gone = remove_node(tree, "node1", forget=True)
    assert render_edited(gone.before, gone.after) == "forgotten"
    assert not tree.kept_node("node1").exists()
    assert tree.kept_node("node3").exists()


def test_forgetting_takes_what_is_kept_under_the_name(tree: Tree) -> None:
    for name in ("node1", "node9"):
        for path in (tree.health(name), tree.consoles(name) / "20261124T080000.log"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
    remove_node(tree, "node1", forget=False)
    assert tree.health("node1").exists(), "a node that is added again has its history"
    assert tree.consoles("node1").exists()
    remove_node(tree, "node1", forget=True)
    assert not tree.health("node1").exists()
    assert not tree.consoles("node1").exists()
    assert tree.consoles("node9").exists()
    remove_node(tree, "node9", forget=True)  # never was in nodes.yaml, or long ago
    assert not tree.health("node9").exists()
    with pytest.raises(InputError, match="unknown node"):
        remove_node(tree, "node9", forget=True)


def test_a_killed_forget_can_be_repeated(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    add_node(tree, "node3", change(macs=[MAC3], profile="generic"))
    tree.consoles("node3").mkdir(parents=True)

    def die(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("imagebuilder.nodes.identity.sync", die)  # when the consoles are gone
        with pytest.raises(KeyboardInterrupt):
            remove_node(tree, "node3", forget=True)
    assert tree.kept_node("node3").exists()
    remove_node(tree, "node3", forget=True)
    assert not tree.kept_node("node3").exists()
    assert not tree.consoles("node3").exists()


def test_a_refusal_completes_what_a_killed_command_left(tree: Tree) -> None:
    add_node(tree, "node3", change(macs=[MAC3], profile="generic"))
    shutil.rmtree(tree.served_node(MAC3))  # killed when nodes.yaml was written
    with pytest.raises(InputError, match="already"):
        add_node(tree, "node3", change(macs=[MAC3], profile="generic"))
    assert (tree.served_node(MAC3) / "boot.ipxe").is_file()
    script = (tree.served_node(MAC3) / "boot.ipxe").read_bytes()
    remove_node(tree, "node3", forget=True)
    tree.served_node(MAC3).mkdir()
    (tree.served_node(MAC3) / "boot.ipxe").write_bytes(script)  # killed again
    with pytest.raises(InputError, match="unknown node"):
        remove_node(tree, "node3", forget=True)
    assert not tree.served_node(MAC3).exists()
