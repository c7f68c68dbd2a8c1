# SPDX-License-Identifier: Apache-2.0
"""The netboot tree: publish images, move channels, list, keep and remove releases."""

from __future__ import annotations

from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.names import (
    AsJson,
    Days,
    Formats,
    IgnoreClients,
    ImageName,
    Profile,
    ReleaseName,
    TreeOption,
    Untested,
)
from imagebuilder.tree import CANDIDATE, DEFAULT_TREE
from imagebuilder.ui import format_count


def publish(
    context: typer.Context,
    image: ImageName,
    channel: Annotated[str, typer.Option(help="Channel to move: candidate or stable.")] = CANDIDATE,
    tree: TreeOption = DEFAULT_TREE,
    to: Annotated[
        str, typer.Option(metavar="ssh://HOST/DIR", help="Publish to another tree: URL or path.")
    ] = "",
    remote_command: Annotated[
        str,
        typer.Option(
            envvar="IMAGEBUILDER_REMOTE",
            help="With --to: how to run imagebuilder there, such as `sudo imagebuilder`.",
        ),
    ] = "",
    formats: Formats = None,
    untested: Untested = "",
    json: AsJson = False,
) -> None:
    """Publish an image to the netboot tree as an immutable release, and move a channel to it.

    Example: imagebuilder publish rx7600xt
    """
    from imagebuilder.publish.publish import publish as publish_here
    from imagebuilder.publish.transport.places import parse_place
    from imagebuilder.publish.transport.send import publish_to
    from imagebuilder.store.state import open_store
    from imagebuilder.tree import Tree, make_tree

    common: Context = context.obj
    store = open_store(common.settings)
    found, packed, ui = store.image(image), formats or (), common.ui
    if to:
        sent = publish_to(
            parse_place(to, remote_command), store, found, ui,
            channel=channel, formats=packed, untested=untested, tested=Tree(tree.absolute()),
        )  # fmt: skip
        print_json(sent.as_json()) if json else print_text(sent.render())
        return
    done = publish_here(
        store, found, make_tree(tree), ui, channel=channel, formats=packed, untested=untested
    )
    print_json(done.as_json()) if json else print_text(done.render())


def promote(
    context: typer.Context,
    release: ReleaseName,
    untested: Untested = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Promote a release, or the profile's candidate, to stable.

    The release must have passed its boot test (imagebuilder test).

    Example: imagebuilder promote rx7600xt
    """
    from imagebuilder.publish.channel.move import promote as promote_release
    from imagebuilder.publish.find import open_tree

    common: Context = context.obj
    moved = promote_release(open_tree(tree), release, common.ui, untested=untested)
    print_json(moved.as_json()) if json else print_text(moved.render())


def rollback(
    context: typer.Context,
    profile: Profile,
    to: Annotated[str, typer.Option(metavar="VERSION", help="Move stable to this version.")] = "",
    untested: Untested = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Move stable back to the previous release. Repeat to go further back.

    Example: imagebuilder rollback rx7600xt
    """
    from imagebuilder.publish.channel.move import rollback as roll_back
    from imagebuilder.publish.find import open_tree

    common: Context = context.obj
    moved = roll_back(open_tree(tree), profile, common.ui, to=to, untested=untested)
    print_json(moved.as_json()) if json else print_text(moved.render())


def releases(
    context: typer.Context,
    profile: Annotated[str, typer.Argument(help="Only releases of this profile.")] = "",
    tree: TreeOption = DEFAULT_TREE,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify every byte of the releases and their roots.")
    ] = False,
    json: AsJson = False,
) -> None:
    """List releases: channels, age, sizes, whether tested and kept, and which nodes use them.

    Example: imagebuilder releases rx7600xt --verify
    """
    from imagebuilder.nodes.evidence.usage import find_usage
    from imagebuilder.nodes.references import find_channel_faults
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.listing import HEADERS, list_releases, tell_forced, verify_releases

    common: Context = context.obj
    place = open_tree(tree)
    if verify:
        count = verify_releases(place, common.ui, profile)
        print_json({"ok": True, "releases": count}) if json else print_text(
            f"intact: {format_count(count, 'release')}"
        )
        return
    usage = find_usage(place)
    for doubt in usage.doubts:
        common.ui.warn(f"every release may be in use: {doubt}")
    for fault in find_channel_faults(place):
        common.ui.warn(str(fault))
    found = list_releases(place, profile, usage)
    if json:
        print_json([release.as_json() for release in found])
    else:
        tell_forced(found, common.ui)
        empty = "no releases yet: run imagebuilder publish PROFILE to make one"
        print_table([release.row() for release in found], HEADERS, empty=empty)


def keep(
    context: typer.Context,
    release: ReleaseName,
    off: Annotated[bool, typer.Option("--off", help="Remove the mark.")] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Mark a release so that gc and unpublish do not remove it.

    Example: imagebuilder keep rx7600xt@20261030080801-1c2d3e4f
    """
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.removal import keep_release

    common: Context = context.obj
    done = keep_release(open_tree(tree), release, common.ui, off=off)
    said = f"{done} is {'no longer ' if off else ''}kept"
    print_json({"release": str(done), "kept": not off}) if json else print_text(said)


def unpublish(
    context: typer.Context,
    release: ReleaseName,
    tree: TreeOption = DEFAULT_TREE,
    days: Days = 30,
    ignore_unknown_clients: IgnoreClients = False,
    json: AsJson = False,
) -> None:
    """Remove a release that is in no channel, not kept, and not used by a node.

    Example: imagebuilder unpublish rx7600xt@20261030080801-1c2d3e4f
    """
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.removal import Caution
    from imagebuilder.publish.removal import unpublish as remove

    common: Context = context.obj
    caution = Caution(days=days, strangers=ignore_unknown_clients)
    gone = str(remove(open_tree(tree), release, common.ui, caution))
    print_json({"removed": gone}) if json else print_text(f"removed {gone}")
