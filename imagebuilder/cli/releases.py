# SPDX-License-Identifier: Apache-2.0
"""The netboot tree: publish images, move channels, list, keep and remove releases."""

from __future__ import annotations

from typing import Annotated

from imagebuilder.cli.context import Call, argument, option, print_answer, print_list, print_result
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
    context: Call,
    image: ImageName,
    channel: Annotated[str, option("Channel to move: candidate or stable.")] = CANDIDATE,
    tree: TreeOption = DEFAULT_TREE,
    to: Annotated[
        str, option("Publish to another tree: URL or path.", metavar="ssh://HOST/DIR")
    ] = "",
    remote_command: Annotated[
        str,
        option(
            "With --to: how to run imagebuilder there, such as `sudo imagebuilder`.",
            envvar="IMAGEBUILDER_REMOTE",
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

    store = open_store(context.obj.settings)
    found, packed, ui = store.image(image), formats or (), context.obj.ui
    if to:
        sent = publish_to(
            parse_place(to, remote_command), store, found, ui,
            channel=channel, formats=packed, untested=untested, tested=Tree(tree.absolute()),
        )  # fmt: skip
        print_result(sent, json=json)
        return
    done = publish_here(
        store, found, make_tree(tree), ui, channel=channel, formats=packed, untested=untested
    )
    print_result(done, json=json)


def promote(
    context: Call,
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

    moved = promote_release(open_tree(tree), release, context.obj.ui, untested=untested)
    print_result(moved, json=json)


def rollback(
    context: Call,
    profile: Profile,
    to: Annotated[str, option("Move stable to this version.", metavar="VERSION")] = "",
    untested: Untested = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Move stable back to the previous release. Repeat to go further back.

    Example: imagebuilder rollback rx7600xt
    """
    from imagebuilder.publish.channel.move import rollback as roll_back
    from imagebuilder.publish.find import open_tree

    moved = roll_back(open_tree(tree), profile, context.obj.ui, to=to, untested=untested)
    print_result(moved, json=json)


def releases(
    context: Call,
    profile: Annotated[str, argument("Only releases of this profile.")] = "",
    tree: TreeOption = DEFAULT_TREE,
    verify: Annotated[
        bool, option("Verify every byte of the releases and their roots.", "--verify")
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

    place = open_tree(tree)
    if verify:
        count = verify_releases(place, context.obj.ui, profile)
        text = f"intact: {format_count(count, 'release')}"
        print_answer({"ok": True, "releases": count}, text, json=json)
        return
    usage = find_usage(place)
    for doubt in usage.doubts:
        context.obj.ui.warn(f"every release may be in use: {doubt}")
    for fault in find_channel_faults(place):
        context.obj.ui.warn(str(fault))
    found = list_releases(place, profile, usage)
    if not json:
        tell_forced(found, context.obj.ui)
    empty = "no releases yet: run imagebuilder publish PROFILE to make one"
    print_list(found, HEADERS, empty=empty, json=json)


def keep(
    context: Call,
    release: ReleaseName,
    off: Annotated[bool, option("Remove the mark.", "--off")] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Mark a release so that gc and unpublish do not remove it.

    Example: imagebuilder keep rx7600xt@20261030080801-1c2d3e4f
    """
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.removal import keep_release

    done = keep_release(open_tree(tree), release, context.obj.ui, off=off)
    said = f"{done} is {'no longer ' if off else ''}kept"
    print_answer({"release": str(done), "kept": not off}, said, json=json)


def unpublish(
    context: Call,
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

    caution = Caution(days=days, strangers=ignore_unknown_clients)
    gone = str(remove(open_tree(tree), release, context.obj.ui, caution))
    print_answer({"removed": gone}, f"removed {gone}", json=json)
