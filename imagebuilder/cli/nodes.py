# SPDX-License-Identifier: Apache-2.0
"""Who boots what: add, change, list, show and remove the nodes of a netboot tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE, make_tree

if TYPE_CHECKING:
    from imagebuilder.nodes.edit import Edited
    from imagebuilder.nodes.types import Node

nodes_app = typer.Typer(
    name="nodes",
    help="Machines that boot: name, MAC addresses, what they boot.",
    no_args_is_help=True,
)

HEADERS = ("node", "boots", "address", "MAC addresses", "group")
NodeName = Annotated[str, typer.Argument(help="Host name: lower-case letters, digits, hyphens.")]
Macs = Annotated[
    list[str], typer.Option("--mac", help="MAC address, the boot NIC's first; may be repeated.")
]
Profile = Annotated[str, typer.Option(help="What it boots.")]
Channel = Annotated[str, typer.Option(help="Channel it follows: stable or candidate.")]
Version = Annotated[str, typer.Option(help="Version it is pinned to, instead of a channel.")]
Address = Annotated[str, typer.Option(help="IPv4 address it always gets.")]
Static = Annotated[
    bool | None, typer.Option("--static/--dhcp", help="Let the kernel take the address itself.")
]
Group = Annotated[str, typer.Option(help="Group of nodes.yaml that it takes values from.")]
Root = Annotated[
    str, typer.Option(help="How it gets its root: nfs, nfs-squashfs, http or http-erofs.")
]
Console = Annotated[list[str], typer.Option(help="Console, such as ttyS0,115200; may be repeated.")]
Cmdline = Annotated[
    list[str], typer.Option(help="Word of the kernel's command line; may be repeated.")
]
Ipxe = Annotated[str, typer.Option(help="Boot file under UEFI: ipxe.efi or snponly.efi.")]
Var = Annotated[
    list[str], typer.Option(help="NAME=VALUE for what runs on it; JSON or text; may be repeated.")
]
Files = Annotated[str, typer.Option(help="Folder of more files of its own, below the tree.")]


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
    console: Console = [],  # noqa: B006 - Typer's way; it is never changed
    cmdline: Cmdline = [],  # noqa: B006
    ipxe: Ipxe = "",
    var: Var = [],  # noqa: B006
    files: Files = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Add a node; it gets its host key and boots so from its next boot on.

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
    name: NodeName,
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
        list[str], typer.Option(help="Key to take out, such as address or vars.rank.")
    ] = [],  # noqa: B006
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Change a node and show the difference; a list that is given replaces the old one.

    Example: imagebuilder nodes set node1 --channel candidate --unset address
    """
    from imagebuilder.nodes.edit import parse_change, set_node

    keys = {"macs": mac, "profile": profile, "channel": channel, "version": version,
            "address": address, "static": static, "group": group, "root": root,
            "console": console, "cmdline": cmdline, "ipxe": ipxe, "files": files}  # fmt: skip
    edited = set_node(make_tree(tree), name, parse_change(keys, var, unset))
    print_edited(context, name, edited, json=json)


@nodes_app.command("list")
def list_(context: typer.Context, tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """List the nodes.

    Example: imagebuilder nodes list
    """
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.publish.find import open_tree

    given: Context = context.obj
    nodes = load_nodes(open_tree(tree))
    for warning in nodes.warnings:
        given.ui.warn(str(warning))
    if json:
        print_json([node.as_json() for node in nodes.nodes])
        return
    empty = "no nodes yet: imagebuilder nodes add NAME --mac MAC --profile PROFILE"
    print_table([row(node) for node in nodes.nodes], HEADERS, empty=empty)


@nodes_app.command()
def show(name: NodeName, tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """Show a node: what it would boot now, its kernel's command line, what it booted last.

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
        bool, typer.Option("--forget", help="Delete its host key and machine-id too.")
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Remove a node; its keys are kept, unless they are to be forgotten.

    Example: imagebuilder nodes remove node1
    """
    from imagebuilder.nodes.edit import remove_node
    from imagebuilder.publish.find import open_tree

    edited = remove_node(open_tree(tree), name, forget=forget)
    print_edited(context, name, edited, json=json)


def row(node: Node) -> tuple[str, ...]:
    """A node's line of the list."""
    return node.name, node.boots, node.address or "-", " ".join(node.macs), node.group or "-"


def print_edited(context: typer.Context, name: str, edited: Edited, *, json: bool) -> None:
    """What an edit did."""
    from imagebuilder.nodes.show import render_edited

    given: Context = context.obj
    for warning in edited.nodes.warnings:
        given.ui.warn(str(warning))
    if json:
        print_json(
            {
                "before": edited.before.as_json() if edited.before else None,
                "after": edited.after.as_json() if edited.after else None,
            }
        )
    else:
        print_text(render_edited(name, edited.before, edited.after))
