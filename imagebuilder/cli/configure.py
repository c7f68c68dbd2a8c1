# SPDX-License-Identifier: Apache-2.0
"""Explain a node, and run Ansible on nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import (
    Call,
    argument,
    exit_unless,
    option,
    print_json,
    print_result,
    print_text,
)
from imagebuilder.cli.drift import complete_name
from imagebuilder.cli.fleet import NODES, open_nodes
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE


def explain(
    node: Annotated[
        str, argument("Name of the node.", metavar="NODE", autocompletion=complete_name)
    ],
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Explain why a node is not up: its stage, what the boot server saw, its health, what to try.

    Exits with 1 unless the node is ready and healthy.

    Example: imagebuilder explain node7
    """
    from imagebuilder.errors import InputError
    from imagebuilder.explain import explain_node

    opened, chosen = open_nodes(tree, [node])
    if len(chosen) != 1:
        raise InputError(f"{node} names {len(chosen)} nodes", hint="name a single node")
    found = explain_node(opened, chosen[0])
    print_result(found, json=json)
    exit_unless(found.view.good)


def inventory(
    everything: Annotated[
        bool, option("Print groups, hosts and their variables.", "--list")
    ] = False,
    host: Annotated[
        str | None, option("Print the variables of one node.", "--host", metavar="NAME")
    ] = None,
    tree: TreeOption = DEFAULT_TREE,
) -> None:
    """Print the nodes as a dynamic inventory for Ansible.

    Example: imagebuilder inventory --list
    """
    from imagebuilder.errors import InputError
    from imagebuilder.fleet.addresses import find_addresses
    from imagebuilder.fleet.ansible import host_vars, inventory_of

    if everything is bool(host):
        raise InputError("nothing to print", hint="use --list, or --host NAME")
    opened, chosen = open_nodes(tree, [host or "@all"])
    if host:
        places = find_addresses(opened, chosen)
        print_json(host_vars(opened, chosen[0], places.get(chosen[0].name, "")))
    else:
        print_json(inventory_of(opened, chosen))


def configure(
    context: Call,
    nodes: Annotated[str, argument(NODES, metavar="NODES")],
    playbooks: Annotated[
        list[Path], argument("Playbooks.", metavar="PLAYBOOK...", exists=True, dir_okay=False)
    ],
    force: Annotated[
        bool, option("Proceed even if nodes are not ready or not healthy.", "--force")
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
) -> None:
    """Run Ansible playbooks on nodes that are up. A node's next boot discards all changes.

    Example: imagebuilder configure @gpu site.yml
    """
    from imagebuilder.errors import WorkError
    from imagebuilder.fleet.ansible import configure_nodes
    from imagebuilder.fleet.overview import overview
    from imagebuilder.fleet.select import fold

    opened, chosen = open_nodes(tree, [nodes])
    bad = [view for view in overview(opened, chosen, ask=True) if not view.good]
    for view in bad:
        health = [view.health.verdict.value] if view.health else []
        words = (view.state.node, view.state.condition.value, *health, view.words)
        context.obj.ui.note(": ".join(words))
    if bad and not force:
        raise WorkError(
            f"not ready and healthy: {fold(view.state.node for view in bad)}; nothing was changed",
            hint="run imagebuilder explain NODE to see why, or use --force to proceed",
        )
    if configure_nodes(opened, chosen, playbooks, os.environ, print_text) != 0:
        raise typer.Exit(1)
