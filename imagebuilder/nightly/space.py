# SPDX-License-Identifier: Apache-2.0
"""Room for a build and its release, asked before anything is begun."""

from __future__ import annotations

from imagebuilder.inventory import collect_garbage
from imagebuilder.lock.storage import check_free
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.faults import TROUBLES
from imagebuilder.nightly.world import World
from imagebuilder.plan import Plan
from imagebuilder.publish.release import SPARE
from imagebuilder.publish.removal import Caution, collect_releases
from imagebuilder.supplies import room_for
from imagebuilder.ui import format_count, format_size


def check_room(world: World, lock: Lock, plan: Plan) -> None:
    """Raise FullError when the image of a plan fits neither the store nor the tree.

    On one file system a release is links, and costs its kernel and initrd; on two it may cost all
    that is built.
    """
    state, tree = world.settings.state, world.tree.path
    room = room_for(state, lock, plan)
    together = state.stat().st_dev == tree.stat().st_dev
    hint = what_frees(world)
    check_free(state, room.total + (SPARE if together else 0), "to build it", hint)
    if not together:
        check_free(tree, room.built + SPARE, "to publish it", hint)


def what_frees(world: World) -> str:
    """What a person can remove, found by trying."""
    keep = world.options.keep
    try:
        old = collect_releases(world.tree, world.ui, Caution(), keep=keep, dry_run=True).releases
        gone = collect_garbage(world.settings, world.ui, keep=keep, dry_run=True)
    except TROUBLES:
        return "imagebuilder gc and imagebuilder gc --releases remove what nobody needs"
    words = []
    if old:
        words.append(
            f"imagebuilder gc --releases --keep {keep} removes " + format_count(len(old), "release")
        )
    if gone.images or gone.layers or gone.packages:
        images, layers, packages = (
            format_count(number, thing)
            for number, thing in (
                (len(gone.images), "image"), (gone.layers, "layer"), (gone.packages, "package"),
            )
        )  # fmt: skip
        words.append(
            f"imagebuilder gc --keep {keep} removes {images}, {layers} and {packages} "
            f"({format_size(gone.package_bytes)})"
        )
    if not words:
        return f"everything there is needed with --keep {keep}: keep fewer, or add a disk"
    return "; ".join(words)
