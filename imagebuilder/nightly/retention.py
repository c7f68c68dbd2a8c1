# SPDX-License-Identifier: Apache-2.0
"""After a night: what is older than the newest few goes, unless somebody needs it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.inventory import collect_garbage
from imagebuilder.nightly.types import Pruned
from imagebuilder.publish.removal import Caution, collect_releases
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui


def prune(
    settings: Settings, tree: Tree, ui: Ui, *, keep: int, refused: Sequence[Path] = ()
) -> Pruned:
    """Remove old releases, images, layers and packages; what went, and what it freed.

    Releases stay that are among the newest `keep` of their profile, in a channel, pinned, kept, or
    in use; packages of the lock files `refused` stay for another try.  Raises as
    collect_releases() and collect_garbage().
    """
    places = (settings.state, tree.path)
    before = free_bytes(places)
    releases = collect_releases(tree, ui, Caution(), keep=keep, dry_run=False)
    images: tuple[str, ...] = ()
    if Store(settings.state / "store").is_there():
        images = collect_garbage(settings, ui, keep=keep, dry_run=False, locks=refused).images
    return Pruned(
        images=images,
        releases=tuple(str(release) for release in releases.releases),
        freed=max(0, free_bytes(places) - before),
    )


def free_bytes(places: Sequence[Path]) -> int:
    """The free bytes of the file systems of these places, each counted once."""
    devices = {place.stat().st_dev: place for place in places}
    found = (os.statvfs(place) for place in devices.values())
    return sum(stat.f_bfree * stat.f_frsize for stat in found)
