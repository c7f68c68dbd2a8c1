# SPDX-License-Identifier: Apache-2.0
"""Nodes: add, change, list, show and remove the nodes of a netboot tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.fleet import NodeSetArgument
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE, make_tree

if TYPE_CHECKING:
    from imagebuilder.nodes.edit import Edited
    from imagebuilder.nodes.types import Node

nodes_app = typer.Typer(
    name="nodes",
    help="Add, change, list, show and remove nodes.",
    no_args_is_help=True,
)

HEADERS = ("node", "boots", "address", "MAC addresses", "group")
NodeName = Annotated[str, typer.Argument(help="Host name: lower-case letters, digits, hyphens.")]
Macs = Annotated[
    list[str], typer.Option("--mac", help="MAC address, the boot NIC's first. Repeatable.")
]
Profile = Annotated[str, typer.Option(help="Profile to boot.")]
Channel = Annotated[str, typer.Option(help="Channel to follow: stable or candidate.")]
Version = Annotated[str, typer.Option(help="Version to pin it to, instead of following a channel.")]
Address = Annotated[str, typer.Option(help="Fixed IPv4 address.")]
Static = Annotated[
    bool | None,
    typer.Option(
        "--static/--dhcp", help="Set the address on the kernel command line instead of by DHCP."
    ),
]
Group = Annotated[str, typer.Option(help="Group in nodes.yaml whose values it inherits.")]
Root = Annotated[str, typer.Option(help="Kind of root: nfs, nfs-squashfs, http or http-erofs.")]
Console = Annotated[list[str], typer.Option(help="Console, such as ttyS0,115200. Repeatable.")]
Cmdline = Annotated[list[str], typer.Option(help="Kernel parameter. Repeatable.")]
Ipxe = Annotated[str, typer.Option(help="Boot file under UEFI: ipxe.efi or snponly.efi.")]
Var = Annotated[
    list[str], typer.Option(help="NAME=VALUE for software on the node; JSON or text. Repeatable.")
]
Files = Annotated[
    str, typer.Option(help="Folder with additional files for this node, below the tree.")
]


@nodes_app.command()
def add(
    context: typer.Context,
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
    from imagebuilder.nodes.edit import add_node, parse_change

    keys = {"macs": mac, "profile": profile, "channel": channel, "version": version,
            "address": address, "static": static, "group": group, "root": root,
            "console": console, "cmdline": cmdline, "ipxe": ipxe, "files": files}  # fmt: skip
    edited = add_node(make_tree(tree), name, parse_change(keys, var))
    print_edited(context, name, edited, json=json)


@nodes_app.command("set")
def set_(
    context: typer.Context,
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
        list[str], typer.Option(help="Key to remove, such as address or vars.rank. Repeatable.")
    ] = [],  # noqa: B006
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Change nodes, all or none of them, and show the differences. A list replaces the old one.

    Example: imagebuilder nodes set node[1-4] --channel candidate --unset version
    """
    from imagebuilder.fleet.select import select_nodes
    from imagebuilder.nodes.edit import parse_change, set_nodes

    keys = {"macs": mac, "profile": profile, "channel": channel, "version": version,
            "address": address, "static": static, "group": group, "root": root,
            "console": console, "cmdline": cmdline, "ipxe": ipxe, "files": files}  # fmt: skip
    change = parse_change(keys, var, unset)
    edited = set_nodes(
        make_tree(tree), lambda known: {n.name: change for n in select_nodes(nodes, known)}
    )
    print_changed(context, edited, json=json)


@nodes_app.command("list")
def list_(context: typer.Context, tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """List the nodes.

    Example: imagebuilder nodes list
    """
    from imagebuilder.nodes.load import ADD_ONE, NO_NODES, load_nodes
    from imagebuilder.publish.find import open_tree

    common: Context = context.obj
    nodes = load_nodes(open_tree(tree))
    for warning in nodes.warnings:
        common.ui.warn(str(warning))
    if json:
        print_json([node.as_json() for node in nodes.nodes])
        return
    empty = f"{NO_NODES}: {ADD_ONE}"
    print_table([row(node) for node in nodes.nodes], HEADERS, empty=empty)


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
    if json:
        print_json(shown.as_json())
    else:
        print_text(render_shown(shown))


@nodes_app.command()
def remove(
    context: typer.Context,
    name: NodeName,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Also delete its host key, machine-id, health history and consoles."
        ),
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


def row(node: Node) -> tuple[str, ...]:
    return node.name, node.boots, node.address or "-", " ".join(node.macs), node.group or "-"


def print_edited(context: typer.Context, name: str, edited: Edited, *, json: bool) -> None:
    """Print how a node was added or removed."""
    from imagebuilder.nodes.show import render_edited

    warn_of(context, edited)
    if json:
        print_json(edited.as_json())
    else:
        print_text(f"{name}: {render_edited(edited.before, edited.after)}")


def print_changed(context: typer.Context, edited: Sequence[Edited], *, json: bool) -> None:
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


def warn_of(context: typer.Context, edited: Edited) -> None:
    common: Context = context.obj
    for warning in edited.nodes.warnings:
        common.ui.warn(str(warning))
