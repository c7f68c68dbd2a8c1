# SPDX-License-Identifier: Apache-2.0
"""Live systems of distributions in the netboot tree: add an ISO, list, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE

live_app = typer.Typer(
    name="live",
    help="Add, list and remove live ISOs of distributions as boot entries.",
    no_args_is_help=True,
)


@live_app.command("add")
def live_add(
    context: typer.Context,
    iso: Annotated[
        Path, typer.Argument(help="A live server ISO of Ubuntu, or a live ISO of Debian.")
    ],
    tree: TreeOption = DEFAULT_TREE,
    name: Annotated[str, typer.Option(help="Name in the menu. [default: the file's name]")] = "",
    autoinstall: Annotated[
        Path | None,
        typer.Option(help="cloud-config with `autoinstall:`; installs to the disk without asking."),
    ] = None,
    ssh_key: Annotated[
        Path | None,
        typer.Option(help="Public key that may log in. [default: those of the site file]"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Add a live ISO as a boot entry. It runs in the node's memory and accepts ssh.

    Example: imagebuilder live add ubuntu-22.04.5-live-server-amd64.iso
    """
    import os

    from imagebuilder.live.entries import add_live, memory_text
    from imagebuilder.live.seed import load_autoinstall, load_operator_keys
    from imagebuilder.settings import find_home
    from imagebuilder.tree import make_tree

    common: Context = context.obj
    install = load_autoinstall(autoinstall) if autoinstall else ""
    keys = () if install else load_operator_keys(common.settings, ssh_key, find_home(os.environ))
    added = add_live(make_tree(tree), iso, common.ui, name=name, keys=keys, autoinstall=install)
    if not added.new:
        common.ui.note(f"{added.live.name} already exists: nothing to do")
    common.ui.note(f"nodes need {memory_text(added.live.memory)} of memory for it")
    if json:
        print_json({**added.live.as_json(), "folder": str(added.folder), "new": added.new})
    else:
        print_text(str(added.folder))


@live_app.command("list")
def live_list(
    context: typer.Context, tree: TreeOption = DEFAULT_TREE, json: AsJson = False
) -> None:
    """List the live systems in the netboot tree.

    Example: imagebuilder live list
    """
    from imagebuilder.live.entries import list_lives
    from imagebuilder.tree import Tree

    del context
    found = list_lives(Tree(tree))
    if json:
        print_json([live.as_json() for live in found])
        return
    empty = "no live systems yet: run imagebuilder live add ISO to make one"
    print_table(
        [live.row() for live in found], ("name", "volume", "ISO", "memory", "does"), empty=empty
    )


@live_app.command("remove")
def live_remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name from `imagebuilder live list`.")],
    tree: TreeOption = DEFAULT_TREE,
) -> None:
    """Remove a live system from the netboot tree. Nodes that run it keep running.

    Example: imagebuilder live remove ubuntu-22.04.5-live-server-amd64
    """
    from imagebuilder.live.entries import remove_live
    from imagebuilder.publish.find import find_tree

    common: Context = context.obj
    remove_live(find_tree(tree), name, common.ui)
    common.ui.note(f"removed {name}")
