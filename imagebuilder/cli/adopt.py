# SPDX-License-Identifier: Apache-2.0
"""Machines that are not in nodes.yaml: list them, and make one a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import (
    Call,
    Context,
    argument,
    option,
    print_json,
    print_table,
    print_text,
)
from imagebuilder.cli.names import AsJson, TreeOption, typed_tree
from imagebuilder.cli.nodes import print_edited
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.discover import Stranger
    from imagebuilder.nodes.types import Nodes
    from imagebuilder.tree import Tree

HEADERS = ("MAC address", "firmware", "first seen", "last seen", "address", "cards", "profile")
NOBODY = """\
no unknown machine has requested an address
  Is it on the nodes' network, and set to boot from the network? Is imagebuilder serve running?
  You can also run imagebuilder adopt MAC with the address on its label."""


def complete_mac(context: typer.Context, incomplete: str) -> list[str]:
    """MAC addresses of DHCP clients that start so."""
    from imagebuilder.nodes.evidence.dhcp_clients import read_dhcp_clients

    clients = read_dhcp_clients(typed_tree(context))
    return [client.mac for client in clients if client.mac.startswith(incomplete)]


def discover(context: Call, tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """List machines that requested an address from the boot server and are not in nodes.yaml.

    Example: imagebuilder discover
    """
    from datetime import UTC, datetime

    from imagebuilder.discover import discover as find_machines
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.publish.find import find_tree
    from imagebuilder.recipe.cards import load_cards

    opened = find_tree(tree)
    found = find_machines(opened, load_nodes(opened), load_cards(context.obj.settings))
    if json:
        print_json([machine.as_json() for machine in found])
        return
    now = datetime.now(UTC)
    print_table([machine.row(now) for machine in found], HEADERS, empty=NOBODY)


def adopt(
    context: Call,
    mac: Annotated[str, argument("MAC address.", metavar="MAC", autocompletion=complete_mac)],
    name: Annotated[str, option("Host name. [default: the next number]")] = "",
    profile: Annotated[str, option("Profile to boot. [default: the one for its cards]")] = "",
    group: Annotated[str, option("Group in nodes.yaml whose values it inherits.")] = "",
    ssh: Annotated[str, option("Read the machine's cards over ssh.", metavar="[USER@]HOST")] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Make a machine a node: write it to nodes.yaml with a name and a profile.

    Example: imagebuilder adopt 52:54:00:77:00:09 --name node9
    """
    from imagebuilder.discover import check_mac, choose_profile
    from imagebuilder.nodes.edit import add_node, parse_change
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.tree import make_tree

    opened = make_tree(tree)
    nodes = load_nodes(opened)
    mac = check_mac(mac, nodes)
    machine = find_stranger(context.obj, opened, nodes, mac, ssh)
    if not profile and not group:
        profile = choose_profile(machine, opened)
    name = name or free_name(opened, nodes)
    change = parse_change({"macs": [mac], "profile": profile, "group": group})
    print_edited(context, name, add_node(opened, name, change), json=json)
    if not json:
        print_text(f"restart it, then run imagebuilder status {name}")


def find_stranger(common: Context, tree: Tree, nodes: Nodes, mac: str, ssh: str) -> Stranger:
    """The machine, with the cards that ssh reports."""
    from imagebuilder.detect import ask_devices, detect
    from imagebuilder.discover import Stranger, discover, find_hardware, find_machine, with_cards
    from imagebuilder.recipe.cards import load_cards

    cards = load_cards(common.settings)
    machine = find_machine(discover(tree, nodes, cards), mac)
    if machine is None:
        common.ui.warn(f"{mac} never requested an address here: is the MAC address right?")
        machine = Stranger(mac)
    if ssh:
        found = detect(ssh, ask_devices(ssh), common.settings).found
        ids = [device.pci for device, _ in found]
        machine = with_cards(machine, ids, find_hardware(tree), cards)
    return machine


def free_name(tree: Tree, nodes: Nodes) -> str:
    """The next name that no removed node keeps."""
    from imagebuilder.discover import propose_name

    return propose_name(nodes, [path.name for path in (tree.path / "nodes").iterdir()])
