# SPDX-License-Identifier: Apache-2.0
"""Machines that are nobody's: what is known and proposed, and `discover` and `adopt` as typed."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from imagebuilder.cli.adopt import adopt, discover
from imagebuilder.discover import best_profiles, propose_name
from imagebuilder.errors import InputError
from imagebuilder.image.types import encode_image
from imagebuilder.nodes.evidence.dhcp_clients import DhcpClient, write_dhcp_clients
from imagebuilder.nodes.evidence.report_log import parse_seen_report
from imagebuilder.nodes.evidence.seen import Seen, merge, newest_first
from imagebuilder.nodes.evidence.strangers import add_strangers
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.process import run
from imagebuilder.recipe.cards import shipped_cards
from imagebuilder.recipe.types import Hardware
from imagebuilder.settings import Settings
from imagebuilder.tree import ReleaseName, Tree
from tests.commands import context_of
from tests.images import IMAGE
from tests.unit.nodes_world import MAC1, MAC2, move_channel, node_tree

Call = Callable[..., Result]
NOW = datetime.now(UTC)
MAC9 = "52:54:00:77:00:09"
RX, RX_9070, ASPEED = "1002:7480", "1002:7550", "1a03:2000"
UEFI = "PXEClient:Arch:00007:UNDI:003016"
NODES = f"# mine\nnodes:\n  node1: {{macs: ['{MAC1}'], profile: generic}}  # the first\n"


def before(**age: float) -> str:
    return (NOW - timedelta(**age)).isoformat(timespec="seconds")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """generic without hardware, rx for a card, and a machine that asked."""
    tree = node_tree(tmp_path)
    move_channel(tree, "rx", "stable", "v1")
    image = replace(IMAGE, profile="rx", version="v1", hardware=(Hardware(RX, "RX 7600 XT"),))
    manifest = tree.release(ReleaseName("rx", "v1")) / "manifest.json"
    manifest.write_text(encode_image(image))
    tree.nodes_file.write_text(NODES)
    write_dhcp_clients(
        tree, [DhcpClient(MAC2, UEFI, 7, "10.77.0.130", before(hours=30), before(minutes=5))]
    )
    return tree


@pytest.fixture
def said() -> io.StringIO:
    """What the program said on stderr."""
    return io.StringIO()


@pytest.fixture
def call(tree: Tree, said: io.StringIO) -> Call:
    """`call("adopt", ...)` on the tree; faults are raised."""
    app = typer.Typer()
    app.command()(discover)
    app.command()(adopt)
    settings = Settings(tree.path, tree.path, tree.path, tree.path / "site.yaml")

    def run(*words: str) -> Result:
        env = {"IMAGEBUILDER_TREE": str(tree.path), "COLUMNS": "100"}
        return CliRunner().invoke(
            app, words, obj=context_of(settings, said), env=env, catch_exceptions=False
        )

    return run


def report(tree: Tree, pci: str, mac: str = MAC2, last: str = before(minutes=2)) -> None:
    """An inventory boot of `generic` reported."""
    seen = Seen(mac, "", "generic", "v1", "10.77.0.131", "switch-root", "", last, last, pci=pci)
    add_strangers(tree, [seen])


def test_a_machine_that_asked_is_listed_with_its_ages(call: Call) -> None:
    rows = [line.split("  ") for line in call("discover").stdout.splitlines()]
    cells = [cell.strip() for cell in rows[1] if cell.strip()]
    assert cells[:3] == [MAC2, "UEFI", "30 h ago"]
    assert re.fullmatch(r"\d+ min ago", cells[3])
    assert cells[4:] == ["10.77.0.130", "unknown", "-"]
    (listed,) = json.loads(call("discover", "--json").stdout)
    assert (listed["mac"], listed["pci"], listed["profiles"]) == (MAC2, None, [])


def test_an_inventory_boot_adds_cards_and_a_profile(call: Call, tree: Tree) -> None:
    report(tree, f"{RX},{ASPEED}")
    report(tree, "", last=before(minutes=1))  # a later report without them
    (listed,) = json.loads(call("discover", "--json").stdout)
    assert (listed["pci"], listed["profiles"]) == ([RX, ASPEED], ["rx"])
    assert listed["cards"][0].startswith("Radeon RX 7600")
    assert (listed["first"], listed["last"]) == (before(hours=30), before(minutes=1))
    assert listed["address"] == "10.77.0.131"


def test_nobody_asked_says_what_to_do(call: Call, tree: Tree) -> None:
    write_dhcp_clients(tree, [DhcpClient(MAC1, UEFI, 7, "", before(), before())])  # a node
    told = call("discover").stdout
    assert told.startswith("no unknown machine has requested an address\n")
    assert "Is imagebuilder serve running?" in told
    assert json.loads(call("discover", "--json").stdout) == []


def test_adopt_writes_a_node_and_keeps_the_comments(call: Call, tree: Tree) -> None:
    report(tree, RX)
    done = call("adopt", MAC2.upper().replace(":", "-"))
    assert done.stdout == (
        f"node2: added\n  macs: {MAC2}\n  profile: rx\n  channel: stable\n"
        "  console: tty0 ttyS0,115200\n  ipxe: ipxe.efi\n  login: compute\n  power: ssh\n"
        "restart it, then run imagebuilder status node2\n"
    )
    assert tree.nodes_file.read_text() == (
        f"{NODES}  node2:\n    macs: ['{MAC2}']\n    profile: rx\n"
    ).replace("['52:54:00:77:00:02']", f"[{MAC2}]")
    assert json.loads(call("discover", "--json").stdout) == []
    with pytest.raises(InputError, match=f"{MAC2} is already a MAC address of node2"):
        call("adopt", MAC2, "--profile", "rx")


def test_adopt_as_json(call: Call) -> None:
    done = json.loads(call("adopt", MAC2, "--profile", "rx", "--name", "gpu7", "--json").stdout)
    assert (done["before"], done["after"]["name"]) == (None, "gpu7")


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        ((MAC2,), "the cards of 52:54:00:77:00:02 are unknown", "published: generic, rx"),
        (
            (MAC2, "--profile", "rx", "--name", "node1"),
            'node "node1" already exists',
            "nodes set node1",
        ),
        ((MAC2, "--profile", "rz"), 'this tree has no release of "rz"', "known: generic, rx"),
        ((MAC2, "--group", "gpu"), 'unknown group "gpu"', ""),
        ((MAC2, "--profile", "rx", "--name", "Node!"), "is not a host name", ""),
        ((MAC1, "--profile", "rx"), f"{MAC1} is already a MAC address of node1", "show node1"),
        (("52:54", "--profile", "rx"), '"52:54" is not a MAC address', "imagebuilder discover"),
        (("53:54:00:77:00:02", "--profile", "rx"), "is a multicast address", ""),
    ],
)
def test_adopt_refuses(
    call: Call, tree: Tree, words: tuple[str, ...], what: str, hint: str
) -> None:
    with pytest.raises(InputError) as raised:
        call("adopt", *words)
    assert what in str(raised.value)
    assert hint in str(raised.value)
    assert tree.nodes_file.read_text() == NODES


def test_a_card_without_a_profile_is_named(call: Call, tree: Tree) -> None:
    report(tree, RX_9070)
    with pytest.raises(InputError, match=r"no published profile supports Radeon RX 9070"):
        call("adopt", MAC2)


def test_a_machine_that_never_asked_is_a_warning(call: Call, said: io.StringIO) -> None:
    assert call("adopt", MAC9, "--profile", "rx").stdout.startswith("node2: added\n")
    assert f"{MAC9} never requested an address here: is the MAC address right?" in said.getvalue()


def test_a_running_machine_is_asked_over_ssh(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        "#!/bin/sh\n"
        'for each in vendor:0x1002 device:0x7480 class:0x030000; do echo "0000:03:00.0/$each"; '
        "done\n"
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    assert "  profile: rx\n" in call("adopt", MAC2, "--ssh", "root@10.77.0.130").stdout


def test_macs_are_completed(tree: Tree) -> None:
    def complete(start: str) -> list[str]:
        words = ["imagebuilder", "adopt", "--tree", os.fspath(tree.path), start]
        env = {
            **os.environ,
            "_IMAGEBUILDER_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": "4",
        }
        return run([sys.executable, "-m", "imagebuilder.cli.main"], env=env).stdout.split()

    assert complete("52:54") == [MAC2]
    assert complete("00:") == []


@pytest.mark.parametrize(
    ("names", "taken", "expected"),
    [
        ([], [], "node1"),
        (["alpha"], [], "node1"),
        (["node1", "node3"], [], "node4"),
        (["node1", "node3"], ["node4"], "node5"),
        (["gpu08", "gpu09", "login1"], [], "gpu10"),
        (["n007"], [], "n008"),
        (["n99"], [], "n100"),
        (["rack1-n2", "rack1-n4", "rack2-n1"], [], "rack1-n5"),
    ],
)
def test_the_next_name_of_the_pattern(names: list[str], taken: list[str], expected: str) -> None:
    nodes = Nodes(nodes=tuple(Node(name, (MAC1,), "generic") for name in names))
    assert propose_name(nodes, taken) == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([RX], ["rx"]),
        ([RX, RX_9070], ["both"]),
        ([RX_9070], ["both"]),
        (["10DE:FFFF"], ["plain"]),
        ([ASPEED], ["plain"]),
        ([], ["plain"]),
        (["1002:744c"], []),  # a known card that no profile is for
        (["1002:164e"], ["plain"]),  # the graphics of a desktop's processor
    ],
)
def test_the_profile_for_most_cards_and_least_else(ids: list[str], expected: list[str]) -> None:
    offers = {"both": frozenset((RX, RX_9070)), "plain": frozenset(), "rx": frozenset((RX,))}
    assert list(best_profiles(ids, offers, shipped_cards())) == expected


def test_two_profiles_for_the_same_card_are_a_choice(call: Call, tree: Tree) -> None:
    release = tree.release(ReleaseName("rx-vllm", "v1"))
    release.mkdir(parents=True)
    image = replace(IMAGE, profile="rx-vllm", version="v1", hardware=(Hardware(RX, "RX 7600"),))
    (release / "manifest.json").write_text(encode_image(image))
    move_channel(tree, "rx-vllm", "stable", "v1")
    report(tree, RX)
    with pytest.raises(InputError, match=f"several profiles match {MAC2}: rx, rx-vllm"):
        call("adopt", MAC2)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("1002:7480", "1002:7480"),
        ("1002:7480,1a03:2000", "1002:7480,1a03:2000"),
        ("none", "none"),
        ("1002:7480;id", ""),
        ("1002:74800", ""),
        ("1002:7480," * 30, ""),
        ("", ""),
    ],
)
def test_only_pci_ids_are_taken_from_a_report(tree: Tree, told: str, kept: str) -> None:
    uri = f"/report/generic/v1?stage=switch-root&pci={told}&node={MAC2}"
    found = parse_seen_report(uri, "10.77.0.131", before())
    assert found is not None
    assert found[1].pci == kept
    add_strangers(tree, [found[1]])


def test_other_reports_of_a_boot_keep_the_cards() -> None:
    first = Seen(MAC2, "", "generic", "v1", "", "switch-root", "", before(), before(), pci=RX)
    later = replace(first, pci="")
    assert merge(first, later).pci == RX
    assert merge(first, replace(first, pci="none")).pci == "none"


def test_a_sign_from_the_future_neither_stays_nor_is_the_newest() -> None:
    """The clock of the boot server was ahead, and was set back."""
    ahead = (datetime.now(UTC) + timedelta(days=400)).isoformat()
    first = Seen(MAC2, "", "generic", "v1", "", "switch-root", "", ahead, ahead)
    today = replace(first, first=before(), last=before(), stage="network")
    found = merge(first, today)
    assert (found.first, found.last, found.stage) == (today.first, today.last, "network")
    assert newest_first([first, today]) == [today, first]
