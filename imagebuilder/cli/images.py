# SPDX-License-Identifier: Apache-2.0
"""The store: list, show, compare, open and export images, clean up, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import (
    Call,
    Context,
    argument,
    exit_unless,
    option,
    print_answer,
    print_list,
    print_result,
    print_text,
)
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
    argument(
        "PROFILE, PROFILE@VERSION, PROFILE/stable or PROFILE/candidate.",
        autocompletion=complete_side,
    ),
]


def images(context: Call, json: AsJson = False) -> None:
    """List the images in the store.

    Example: imagebuilder images
    """
    from imagebuilder.inventory import list_images

    found = list_images(context.obj.settings)
    place = context.obj.settings.state
    empty = f"no images in {place} yet: run imagebuilder build PROFILE to make one"
    print_list(found, ("image", "built", "root", "kernel", "packages"), empty=empty, json=json)


def show(
    context: Call, image: ImageName, base: OnBase = "", engine: ByEngine = "", json: AsJson = False
) -> None:
    """Show an image: kernel, command line, layers, largest packages. --json prints its manifest.

    Example: imagebuilder show rx7600xt
    """
    from imagebuilder.cli.summary import render_image
    from imagebuilder.image.types import encode_image, read_image
    from imagebuilder.store.state import open_store

    store = open_store(context.obj.settings)
    found = read_image(store, store.image(chosen_image(image, context.obj, base, engine)))
    print_text(encode_image(found).rstrip("\n") if json else render_image(found))


def sbom(
    context: Call,
    image: ImageName,
    base: OnBase = "",
    engine: ByEngine = "",
    files: Annotated[
        bool,
        option("Add every file, with its checksums and what brought or changed it.", "--files"),
    ] = False,
) -> None:
    """Print the SBOM of an image (SPDX 2.3, JSON).

    Example: imagebuilder sbom rx7600xt > rx7600xt.spdx.json
    """
    from imagebuilder.proof.provenance.why import render_with_files
    from imagebuilder.store.state import open_store

    name = chosen_image(image, context.obj, base, engine)
    if files:
        print_text(render_with_files(context.obj.settings, name))
        return
    store = open_store(context.obj.settings)
    print_text(store.read(store.image(name).commit, "/sbom.spdx.json"))


def chosen_image(image: str, common: Context, base: str, engine: str) -> str:
    """The name of an image on another base or with another engine.  Raises InputError."""
    from imagebuilder.recipe.variant import choose_profile

    profile, at, version = image.partition("@")
    return choose_profile(profile, common.settings, base, engine) + at + version


def diff(
    context: Call,
    old: Side,
    new: Side,
    files: Annotated[
        bool, option("Compare every file; changed packages are summarised.", "--files")
    ] = False,
    path: Annotated[
        str, option("List every changed file whose path matches.", metavar="GLOB")
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

    before, after = (find_side(name, context.obj.settings, tree) for name in (old, new))
    found = diff_images(before.image, after.image)
    listed = compare_files(before, after, found, path) if files or path else None
    value = diff_json(found) | ({"files": files_json(listed)} if listed else {})
    text = render_diff(found) + (f"\n{render_files(listed)}" if listed else "")
    print_answer(value, text, json=json)


def export(
    context: Call,
    image: ImageName,
    folder: Annotated[Path, argument("Folder to create; it must not exist.")],
    packed: Annotated[
        Format | None, option("Write the root as one file instead of a tree.", "--format")
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

    store, owner = open_store(context.obj.settings), find_caller(os.environ)
    export_image(store, store.image(image), folder, context.obj.ui, packed=packed, owner=owner)
    print_text(str(folder))


def shell(
    context: Call,
    image: Annotated[
        str, argument("PROFILE or PROFILE@VERSION.", autocompletion=complete_image)
    ] = "",
    failed: Annotated[str, option("Use a tree kept by --keep-failed instead of an image.")] = "",
    command: Annotated[
        str, option("Run this command with sh instead of a shell.", "--command", "-c")
    ] = "",
    network: Annotated[
        bool, option("Use the network and the name resolution of this host.", "--network")
    ] = False,
) -> None:
    """Open a shell in an image, in a sandbox. Changes are thrown away.

    Example: imagebuilder shell rx7600xt -c 'ls /opt'
    """
    from imagebuilder.image.shell import run_failed_shell, run_image_shell

    if failed:
        raise typer.Exit(run_failed_shell(context.obj.settings, failed, command, network=network))
    if not image:
        raise typer.BadParameter("name an image, or a failed build with --failed")
    raise typer.Exit(run_image_shell(context.obj.settings, image, command, network=network))


def gc(
    context: Call,
    keep: Annotated[int, option("Images or releases to keep per profile.", min=1)] = 5,
    releases: Annotated[
        bool,
        option("Remove releases from the netboot tree, not images from the store.", "--releases"),
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    days: Days = 30,
    ignore_unknown_clients: IgnoreClients = False,
    dry_run: Annotated[bool, option("Only list what would be removed.", "--dry-run")] = False,
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

    if releases:
        caution = Caution(days=days, strangers=ignore_unknown_clients)
        place = open_tree(tree)
        gone = collect_releases(place, context.obj.ui, caution, keep=keep, dry_run=dry_run)
        print_answer(gone.as_json(), gone.render(dry_run=dry_run), json=json)
        return
    done = collect_garbage(context.obj.settings, context.obj.ui, keep=keep, dry_run=dry_run)
    print_answer(done.as_json(), done.render(dry_run=dry_run), json=json)


def fsck(
    context: Call,
    place: Annotated[
        Path,
        argument(
            "With --tree: the netboot tree.",
            metavar="[TREE]",
            envvar="IMAGEBUILDER_TREE",
            readable=False,
        ),
    ] = DEFAULT_TREE,
    tree: Annotated[
        bool, option("Also verify the netboot tree: releases, roots, channels.", "--tree")
    ] = False,
    repair: Annotated[
        bool, option("Download, restore or drop damaged content.", "--repair")
    ] = False,
    json: AsJson = False,
) -> None:
    """Verify every object, layer and image in the store and every file in the package pool.

    Exits with 0 if everything is intact or was repaired, and with 1 if damage remains.

    Example: imagebuilder fsck --tree --repair
    """
    from imagebuilder.fsck.check import check_all

    source = context.get_parameter_source("place")
    if not tree and source and source.name == "COMMANDLINE":
        raise typer.BadParameter("TREE needs --tree")
    done = check_all(context.obj.settings, context.obj.ui, place, with_tree=tree, repair=repair)
    print_result(done, json=json)
    exit_unless(done.whole)
