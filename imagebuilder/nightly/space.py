# SPDX-License-Identifier: Apache-2.0
"""Room for a build and its release, asked before anything is begun."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from imagebuilder.build import room_for
from imagebuilder.errors import FullError
from imagebuilder.inventory import collect_garbage
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.faults import TROUBLES
from imagebuilder.nightly.world import World
from imagebuilder.plan import Plan
from imagebuilder.publish.release import SPARE
from imagebuilder.publish.removal import Caution, collect_releases
from imagebuilder.ui import format_size


def check_room(world: World, lock: Lock, plan: Plan) -> None:
    """Raise FullError when the image of a plan fits neither the store nor the tree.

    On one file system a release is links, and costs its kernel and initrd; on two it may cost all
    that is built.
    """
    state, tree = world.settings.state, world.tree.path
    wanted = room_for(lock, plan)
    together = state.stat().st_dev == tree.stat().st_dev
    check_free(state, wanted + (SPARE if together else 0), world)
    if not together:
        check_free(tree, wanted + SPARE, world)


def check_free(place: Path, wanted: int, world: World) -> None:
    """Raise FullError unless `wanted` bytes are free at `place`."""
    free = shutil.disk_usage(place).free
    if free < wanted:
        raise FullError(
            f"no space left: {format_size(free)} free, at least {format_size(wanted)} needed",
            where=os.fspath(place),
            hint=what_frees(world),
        )


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
        words.append(f"imagebuilder gc --releases --keep {keep} removes {len(old)} releases")
    if gone.images or gone.layers or gone.packages:
        words.append(
            f"imagebuilder gc --keep {keep} removes {len(gone.images)} images, {gone.layers} layers"
            f" and {gone.packages} packages ({format_size(gone.package_bytes)})"
        )
    if not words:
        return f"everything there is needed with --keep {keep}: keep fewer, or add a disk"
    return "; ".join(words)
