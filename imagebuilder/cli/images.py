# SPDX-License-Identifier: Apache-2.0
"""The store: list, show, compare, open and export images, clean up, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.names import (
    AsJson,
    ByEngine,
    Days,
    IgnoreClients,
    ImageName,
    OnBase,
    TreeOption,
    complete_image,
    complete_release,
)
from imagebuilder.rootkind import Format
from imagebuilder.tree import DEFAULT_TREE


def complete_side(context: typer.Context, incomplete: str) -> list[str]:
    return sorted({*complete_image(context, incomplete), *complete_release(context, incomplete)})


Side = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_side,
        help="PROFILE, PROFILE@VERSION, PROFILE/stable or PROFILE/candidate.",
    ),
]


def images(context: typer.Context, json: AsJson = False) -> None:
    """List the images in the store.

    Example: imagebuilder images
    """
    from imagebuilder.inventory import list_images

    common: Context = context.obj
    found = list_images(common.settings)
    if json:
        print_json([image.as_json() for image in found])
        return
    rows = [image.row() for image in found]
    empty = f"no images in {common.settings.state} yet: run imagebuilder build PROFILE to make one"
    print_table(rows, ("image", "built", "root", "kernel", "packages"), empty=empty)


def show(
    context: typer.Context,
    image: ImageName,
    base: OnBase = "",
    engine: ByEngine = "",
    json: AsJson = False,
) -> None:
    """Show an image: kernel, command line, layers, largest packages. --json prints its manifest.

    Example: imagebuilder show rx7600xt
    """
    from imagebuilder.cli.summary import render_image
    from imagebuilder.image.types import encode_image, read_image
    from imagebuilder.store.state import open_store

    common: Context = context.obj
    store = open_store(common.settings)
    found = read_image(store, store.image(chosen_image(image, common, base, engine)))
    print_text(encode_image(found).rstrip("\n") if json else render_image(found))


def sbom(
    context: typer.Context,
    image: ImageName,
    base: OnBase = "",
    engine: ByEngine = "",
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="Add every file, with its checksums and what brought or changed it."
        ),
    ] = False,
) -> None:
    """Print the SBOM of an image (SPDX 2.3, JSON).

    Example: imagebuilder sbom rx7600xt > rx7600xt.spdx.json
    """
    from imagebuilder.proof.provenance.sbom import render_with_files
    from imagebuilder.store.state import open_store

    common: Context = context.obj
    name = chosen_image(image, common, base, engine)
    if files:
        print_text(render_with_files(common.settings, name))
        return
    store = open_store(common.settings)
    print_text(store.read(store.image(name).commit, "/sbom.spdx.json"))


def chosen_image(image: str, common: Context, base: str, engine: str) -> str:
    """The name of an image on another base or with another engine.  Raises InputError."""
    from imagebuilder.recipe.variant import choose_profile

    profile, at, version = image.partition("@")
    return choose_profile(profile, common.settings, base, engine) + at + version


def diff(
    context: typer.Context,
    old: Side,
    new: Side,
    files: Annotated[
        bool, typer.Option("--files", help="Compare every file; changed packages are summarised.")
    ] = False,
    path: Annotated[
        str, typer.Option(metavar="GLOB", help="List every changed file whose path matches.")
    ] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Compare two images or releases: packages, kernel, command line, size, files.

    Example: imagebuilder diff rx7600xt/stable rx7600xt --files
    """
    from imagebuilder.drift.sides import compare_files, find_side
    from imagebuilder.image.changes import files_json, render_files
    from imagebuilder.image.diff import diff_images, diff_json, render_diff

    common: Context = context.obj
    before, after = (find_side(name, common.settings, tree) for name in (old, new))
    found = diff_images(before.image, after.image)
    listed = compare_files(before, after, found, path) if files or path else None
    if json:
        print_json(diff_json(found) | ({"files": files_json(listed)} if listed else {}))
    else:
        print_text(render_diff(found) + (f"\n{render_files(listed)}" if listed else ""))


def export(
    context: typer.Context,
    image: ImageName,
    folder: Annotated[Path, typer.Argument(help="Folder to create; it must not exist.")],
    packed: Annotated[
        Format | None,
        typer.Option("--format", help="Write the root as one file instead of a tree."),
    ] = None,
) -> None:
    """Export an image to a folder: kernel, initrd, command line, manifest, SBOM, root.

    With --format the files belong to you, even under sudo. A tree contains setuid programs, so only
    root may enter its folder.

    Example: imagebuilder export generic /srv/generic --format squashfs
    """
    import os

    from imagebuilder.image.formats import export_image
    from imagebuilder.settings import find_caller
    from imagebuilder.store.state import open_store

    common: Context = context.obj
    store, owner = open_store(common.settings), find_caller(os.environ)
    export_image(store, store.image(image), folder, common.ui, packed=packed, owner=owner)
    print_text(str(folder))


def shell(
    context: typer.Context,
    image: Annotated[
        str, typer.Argument(autocompletion=complete_image, help="PROFILE or PROFILE@VERSION.")
    ] = "",
    failed: Annotated[
        str, typer.Option(help="Use a tree kept by --keep-failed instead of an image.")
    ] = "",
    command: Annotated[
        str, typer.Option("--command", "-c", help="Run this command with sh instead of a shell.")
    ] = "",
    network: Annotated[
        bool,
        typer.Option("--network", help="Use the network and the name resolution of this host."),
    ] = False,
) -> None:
    """Open a shell in an image, in a sandbox. Changes are thrown away.

    Example: imagebuilder shell rx7600xt -c 'ls /opt'
    """
    from imagebuilder.image.shell import run_failed_shell, run_image_shell

    common: Context = context.obj
    if failed:
        raise typer.Exit(run_failed_shell(common.settings, failed, command, network=network))
    if not image:
        raise typer.BadParameter("name an image, or a failed build with --failed")
    raise typer.Exit(run_image_shell(common.settings, image, command, network=network))


def gc(
    context: typer.Context,
    keep: Annotated[int, typer.Option(min=1, help="Images or releases to keep per profile.")] = 5,
    releases: Annotated[
        bool,
        typer.Option(
            "--releases", help="Remove releases from the netboot tree, not images from the store."
        ),
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    days: Days = 30,
    ignore_unknown_clients: IgnoreClients = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be removed.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Remove old images, unused layers and packages, and failed builds.

    Finished layers of failed builds are kept for 30 days, because the next build reuses them.

    With --releases, it removes releases that are in no channel, not kept and not in use.

    Example: imagebuilder gc --keep 3
    """
    from imagebuilder.inventory import collect_garbage
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.removal import Caution, collect_releases

    common: Context = context.obj
    if releases:
        caution = Caution(days=days, strangers=ignore_unknown_clients)
        place = open_tree(tree)
        gone = collect_releases(place, common.ui, caution, keep=keep, dry_run=dry_run)
        print_json(gone.as_json()) if json else print_text(gone.render(dry_run=dry_run))
        return
    done = collect_garbage(common.settings, common.ui, keep=keep, dry_run=dry_run)
    if json:
        print_json(done.as_json())
    else:
        print_text(done.render(dry_run=dry_run))


def fsck(
    context: typer.Context,
    place: Annotated[
        Path,
        typer.Argument(
            metavar="[TREE]",
            envvar="IMAGEBUILDER_TREE",
            readable=False,  # checked when it is used
            help="With --tree: the netboot tree.",
        ),
    ] = DEFAULT_TREE,
    tree: Annotated[
        bool,
        typer.Option("--tree", help="Also verify the netboot tree: releases, roots, channels."),
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Download, restore or drop damaged content.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Verify every object, layer and image in the store and every file in the package pool.

    Exits with 0 if everything is intact or was repaired, and with 1 if damage remains.

    Example: imagebuilder fsck --tree --repair
    """
    from imagebuilder.fsck.check import check_all

    common: Context = context.obj
    source = context.get_parameter_source("place")
    if not tree and source and source.name == "COMMANDLINE":
        raise typer.BadParameter("TREE needs --tree")
    done = check_all(common.settings, common.ui, place, with_tree=tree, repair=repair)
    print_json(done.as_json()) if json else print_text(done.render())
    if not done.whole:
        raise typer.Exit(1)
