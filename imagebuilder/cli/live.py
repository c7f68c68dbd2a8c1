# SPDX-License-Identifier: Apache-2.0
"""Live systems of distributions in the netboot tree: add an ISO, list, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Call, argument, option, print_answer, print_list
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE

live_app = typer.Typer(
    name="live",
    help="Add, list and remove live ISOs of distributions as boot entries.",
    no_args_is_help=True,
)


@live_app.command("add")
def live_add(
    context: Call,
    iso: Annotated[Path, argument("A live server ISO of Ubuntu, or a live ISO of Debian.")],
    tree: TreeOption = DEFAULT_TREE,
    name: Annotated[str, option("Name in the menu. [default: the file's name]")] = "",
    autoinstall: Annotated[
        Path | None,
        option("cloud-config with `autoinstall:`; installs to the disk without asking."),
    ] = None,
    ssh_key: Annotated[
        Path | None, option("Public key that may log in. [default: those of the site file]")
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

    ui, home = context.obj.ui, find_home(os.environ)
    install = load_autoinstall(autoinstall) if autoinstall else ""
    keys = () if install else load_operator_keys(context.obj.settings, ssh_key, home)
    added = add_live(make_tree(tree), iso, ui, name=name, keys=keys, autoinstall=install)
    if not added.new:
        ui.note(f"{added.live.name} already exists: nothing to do")
    ui.note(f"nodes need {memory_text(added.live.memory)} of memory for it")
    folder = str(added.folder)
    print_answer({**added.live.as_json(), "folder": folder, "new": added.new}, folder, json=json)


@live_app.command("list")
def live_list(tree: TreeOption = DEFAULT_TREE, json: AsJson = False) -> None:
    """List the live systems in the netboot tree.

    Example: imagebuilder live list
    """
    from imagebuilder.live.entries import list_lives
    from imagebuilder.tree import Tree

    found = list_lives(Tree(tree))
    empty = "no live systems yet: run imagebuilder live add ISO to make one"
    print_list(found, ("name", "volume", "ISO", "memory", "does"), empty=empty, json=json)


@live_app.command("remove")
def live_remove(
    context: Call,
    name: Annotated[str, argument("A name from `imagebuilder live list`.")],
    tree: TreeOption = DEFAULT_TREE,
) -> None:
    """Remove a live system from the netboot tree. Nodes that run it keep running.

    Example: imagebuilder live remove ubuntu-22.04.5-live-server-amd64
    """
    from imagebuilder.live.entries import remove_live
    from imagebuilder.publish.find import find_tree

    remove_live(find_tree(tree), name, context.obj.ui)
    context.obj.ui.note(f"removed {name}")
