# SPDX-License-Identifier: Apache-2.0
"""Kernel messages of a node, and its serial console."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import Call, Context, argument, option, print_json, print_text
from imagebuilder.cli.drift import complete_name
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.nodes.types import Node


def console(
    context: Call,
    node: Annotated[
        str, argument("Name of the node.", metavar="NODE", autocompletion=complete_name)
    ],
    boots: Annotated[int, option("Boots to print, the last one last.", min=1)] = 1,
    follow: Annotated[bool, option("Print new messages until Ctrl-C.", "--follow", "-f")] = False,
    serial: Annotated[
        bool, option("Connect to the node's serial console through its BMC (ipmi).", "--serial")
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Print the kernel messages of a node's last boots.

    Example: imagebuilder console node7 --boots 2
    """
    from imagebuilder.nodes.edit import require
    from imagebuilder.nodes.evidence.consoles import find_consoles, follow_console
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.publish.find import find_tree

    if follow and json:
        raise typer.BadParameter("--follow cannot be combined with --json")
    opened = find_tree(tree)
    chosen = require(load_nodes(opened), node)
    if serial:
        connect(context.obj, chosen)
    found = find_consoles(opened, node)
    check_wanted(chosen, found=found)
    if follow:
        for line in follow_console(opened, node):
            print_text(line)
    if json:
        print_json([boot.as_json() for boot in found[-boots:]])
    elif not found:
        print_text(f"no messages from {node} yet: boot it with an image that supports netconsole")
    else:
        print_text("\n".join(line for boot in found[-boots:] for line in boot.render()))


def check_wanted(node: Node, *, found: object) -> None:
    """Raise InputError if a node has no messages and does not send any."""
    from imagebuilder.errors import InputError

    if not found and not node.netconsole:
        hint = f"set `netconsole: true` for {node.name} in nodes.yaml, and boot it again"
        if node.power.driver == "ipmi":
            hint += ", or use --serial to connect through its BMC"
        raise InputError(f"{node.name} does not send its messages", hint=hint)


def connect(common: Context, node: Node) -> None:
    """Replace this process with one that connects the terminal to a node's serial console."""
    from imagebuilder.errors import InputError
    from imagebuilder.fleet.power.choose import choose_drivers
    from imagebuilder.fleet.power.programs import Ipmi
    from imagebuilder.process import exec_program

    driver = choose_drivers([node], {}, os.environ)[node.name]
    if not isinstance(driver, Ipmi):
        what = f"could not connect to the serial console of {node.name}: its power driver is "
        raise InputError(f"{what}{node.power.driver}", hint="only the driver ipmi supports it")
    common.ui.note("type ~. to disconnect")
    argv, env = driver.serial()
    exec_program(argv, env=env)
