# SPDX-License-Identifier: Apache-2.0
"""Whether a reboot would change a node."""

from __future__ import annotations

from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_text
from imagebuilder.cli.names import AsJson, TreeOption, typed_tree
from imagebuilder.tree import DEFAULT_TREE


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Nodes and published profiles of the tree with this prefix."""
    from imagebuilder.errors import ImagebuilderError
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.nodes.references import find_profiles

    tree = typed_tree(context)
    try:
        names = {*find_profiles(tree), *(node.name for node in load_nodes(tree).nodes)}
    except (ImagebuilderError, OSError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def drift(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NODE|PROFILE",
            autocompletion=complete_name,
            help="Nodes, or profiles with their nodes. [default: all]",
        ),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if a reboot would change a node.")
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Show whether a reboot would change nodes: kernel, root, command line, own files.

    For a profile, it also compares the stable release with what is newer: releases, images, recipe.

    Example: imagebuilder drift node1 generic
    """
    from imagebuilder.drift.answer import answer
    from imagebuilder.drift.show import render_drift
    from imagebuilder.publish.find import open_tree

    common: Context = context.obj
    found = answer(open_tree(tree), common.settings, names or (), common.ui)
    if json:
        print_json(found.as_json())
    else:
        print_text(render_drift(found.nodes, found.profiles))
    if exit_code and found.changes:
        raise typer.Exit(1)
