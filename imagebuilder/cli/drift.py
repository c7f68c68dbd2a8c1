# SPDX-License-Identifier: Apache-2.0
"""Whether a reboot would change a node."""

from __future__ import annotations

from typing import Annotated

import typer

from imagebuilder.cli.context import Call, argument, exit_unless, option, print_answer
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
    context: Call,
    names: Annotated[
        list[str] | None,
        argument(
            "Nodes, or profiles with their nodes. [default: all]",
            metavar="NODE|PROFILE",
            autocompletion=complete_name,
        ),
    ] = None,
    exit_code: Annotated[
        bool, option("Exit with 1 if a reboot would change a node.", "--exit-code")
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

    found = answer(open_tree(tree), context.obj.settings, names or (), context.obj.ui)
    print_answer(found.as_json(), render_drift(found.nodes, found.profiles), json=json)
    exit_unless(not (exit_code and found.changes))
