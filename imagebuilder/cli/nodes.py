# SPDX-License-Identifier: Apache-2.0
"""Nodes: add, change, list, show and remove the nodes of a netboot tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imagebuilder.cli.context import (
    Call,
    argument,
    option,
    print_answer,
    print_json,
    print_list,
    print_text,
)
from imagebuilder.cli.fleet import NodeSetArgument
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE, make_tree

if TYPE_CHECKING:
    from imagebuilder.nodes.edit import Edited

nodes_app = typer.Typer(
    name="nodes", help="Add, change, list, show and remove nodes.", no_args_is_help=True
)

HEADERS = ("node", "boots", "address", "MAC addresses", "group")
NodeName = Annotated[str, argument("Host name: lower-case letters, digits, hyphens.")]
Macs = Annotated[list[str], option("MAC address, the boot NIC's first. Repeatable.", "--mac")]
Profile = Annotated[str, option("Profile to boot.")]
Channel = Annotated[str, option("Channel to follow: stable or candidate.")]
Version = Annotated[str, option("Version to pin it to, instead of following a channel.")]
Address = Annotated[str, option("Fixed IPv4 address.")]
Static = Annotated[
    bool | None,
    option("Set the address on the kernel command line instead of by DHCP.", "--static/--dhcp"),
]
Group = Annotated[str, option("Group in nodes.yaml whose values it inherits.")]
Root = Annotated[str, option("Kind of root: nfs, nfs-squashfs, http or http-erofs.")]
Console = Annotated[list[str], option("Console, such as ttyS0,115200. Repeatable.")]
Cmdline = Annotated[list[str], option("Kernel parameter. Repeatable.")]
Ipxe = Annotated[str, option("Boot file under UEFI: ipxe.efi or snponly.efi.")]
Var = Annotated[list[str], option("NAME=VALUE for software on the node; JSON or text. Repeatable.")]
Files = Annotated[str, option("Folder with additional files for this node, below the tree.")]


KEYS = ("profile", "channel", "version", "address", "static", "group", "root", "console",
        "cmdline", "ipxe", "files")  # fmt: skip


def keys_in(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of nodes.yaml among the parameters of a command."""
    return {"macs": typed["mac"], **{key: typed[key] for key in KEYS}}


@nodes_app.command()
def add(
    context: Call,
    name: NodeName,
    mac: Macs,
    profile: Profile = "",
    channel: Channel = "",
    version: Version = "",
    address: Address = "",
    static: Static = None,
    group: Group = "",
    root: Root = "",
    console: Console = [],  # noqa: B006 - as Typer needs it; never changed
    cmdline: Cmdline = [],  # noqa: B006
    ipxe: Ipxe = "",
    var: Var = [],  # noqa: B006
    files: Files = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Add a node and generate its host key. It takes effect at the next boot.

    Example: imagebuilder nodes add node1 --mac 52:54:00:77:00:01 --profile rx7600xt
    """
    typed = locals()
    from imagebuilder.nodes.edit import add_node, parse_change

    edited = add_node(make_tree(tree), name, parse_change(keys_in(typed), var))
    print_edited(context, name, edited, json=json)


@nodes_app.command("set")
def set_(
    context: Call,
    nodes: NodeSetArgument,
    mac: Macs = [],  # noqa: B006
    profile: Profile = "",
    channel: Channel = "",
    version: Version = "",
    address: Address = "",
    static: Static = None,
    group: Group = "",
    root: Root = "",
    console: Console = [],  # noqa: B006
    cmdline: Cmdline = [],  # noqa: B006
    ipxe: Ipxe = "",
    var: Var = [],  # noqa: B006
    files: Files = "",
    unset: Annotated[
        list[str], option("Key to remove, such as address or vars.rank. Repeatable.")
    ] = [],  # noqa: B006
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Change nodes, all or none of them, and show the differences. A list replaces the old one.

    Example: imagebuilder nodes set node[1-4] --channel candidate --unset version
    """
    typed = locals()
    from imagebuilder.fleet.select import select_nodes
    from imagebuilder.nodes.edit import parse_change, set_nodes

    change = parse_change(keys_in(typed), var, unset)
    edited = set_nodes(
        make_tree(tree), lambda known: {n.name: change for n in select_nodes(nodes, known)}
    )
    print_changed(context, edited, json=json)


@nodes_app.command("list")
def list_(context: Call, tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """List the nodes.

    Example: imagebuilder nodes list
    """
    from imagebuilder.nodes.load import ADD_ONE, NO_NODES, load_nodes
    from imagebuilder.publish.find import open_tree

    nodes = load_nodes(open_tree(tree))
    for warning in nodes.warnings:
        context.obj.ui.warn(str(warning))
    print_list(nodes.nodes, HEADERS, empty=f"{NO_NODES}: {ADD_ONE}", json=json)


@nodes_app.command()
def show(name: NodeName, tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """Show a node: what it would boot now, its command line, what it booted last.

    Example: imagebuilder nodes show node1
    """
    from imagebuilder.nodes.edit import require
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.nodes.show import render_shown, show_node
    from imagebuilder.publish.find import open_tree

    opened = open_tree(tree)
    shown = show_node(opened, require(load_nodes(opened), name))
    print_answer(shown.as_json(), render_shown(shown), json=json)


@nodes_app.command()
def remove(
    context: Call,
    name: NodeName,
    forget: Annotated[
        bool,
        option("Also delete its host key, machine-id, health history and consoles.", "--forget"),
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Remove a node. Its keys and records are kept unless you add --forget.

    Example: imagebuilder nodes remove node1
    """
    from imagebuilder.nodes.edit import remove_node
    from imagebuilder.publish.find import open_tree

    edited = remove_node(open_tree(tree), name, forget=forget)
    print_edited(context, name, edited, json=json)


def print_edited(context: Call, name: str, edited: Edited, *, json: bool) -> None:
    """Print how a node was added or removed."""
    from imagebuilder.nodes.show import render_edited

    warn_of(context, edited)
    text = f"{name}: {render_edited(edited.before, edited.after)}"
    print_answer(edited.as_json(), text, json=json)


def print_changed(context: Call, edited: Sequence[Edited], *, json: bool) -> None:
    """Print how nodes were changed; those that were changed in the same way, together."""
    from imagebuilder.fleet.select import fold
    from imagebuilder.nodes.show import render_edited

    warn_of(context, edited[0])
    if json:
        print_json([each.as_json() for each in edited])
        return
    alike: dict[str, list[str]] = {}
    for each in edited:
        assert each.after
        alike.setdefault(render_edited(each.before, each.after), []).append(each.after.name)
    print_text("\n".join(f"{fold(names)}: {said}" for said, names in alike.items()))


def warn_of(context: Call, edited: Edited) -> None:
    for warning in edited.nodes.warnings:
        context.obj.ui.warn(str(warning))
