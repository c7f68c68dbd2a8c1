# SPDX-License-Identifier: Apache-2.0
"""Disk space of a nightly run: what a build needs, what a tree holds, and what to remove."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.inventory import collect_garbage
from imagebuilder.lock.file import load_lock
from imagebuilder.lock.storage import check_free
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.context import Nightly
from imagebuilder.nightly.faults import TROUBLES
from imagebuilder.nightly.types import Pruned
from imagebuilder.plan import Plan
from imagebuilder.publish.release.make import SPARE
from imagebuilder.publish.removal import Caution, collect_releases
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.supplies import build_space
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui, format_count, format_size


def check_space(nightly: Nightly, recipe: Recipe, lock: Lock, plan: Plan) -> None:
    """Raise FullError unless the image of a plan fits into the store and the tree.

    On one file system a release is links, and takes the space of its kernel and initrd; on two it
    may take the space of all that is built.
    """
    state, tree = nightly.settings.state, nightly.tree.path
    needed = build_space(state, recipe, lock, plan)
    together = state.stat().st_dev == tree.stat().st_dev
    hint = what_frees(nightly)
    check_free(state, needed.total + (SPARE if together else 0), "to build it", hint)
    if not together:
        check_free(tree, needed.built + SPARE, "to publish it", hint)


def what_frees(nightly: Nightly) -> str:
    """What a person can remove, found with dry runs."""
    keep = nightly.options.keep
    try:
        old = collect_releases(
            nightly.tree, nightly.ui, Caution(), keep=keep, dry_run=True
        ).releases
        gone = collect_garbage(nightly.settings, nightly.ui, keep=keep, dry_run=True)
    except TROUBLES:
        return "remove what is not needed with imagebuilder gc and imagebuilder gc --releases"
    words = []
    if old:
        words.append(
            f"imagebuilder gc --releases --keep {keep} to remove "
            + format_count(len(old), "release")
        )
    if gone.images or gone.layers or gone.packages:
        images, layers, packages = (
            format_count(number, thing)
            for number, thing in (
                (len(gone.images), "image"), (gone.layers, "layer"), (gone.packages, "package"),
            )
        )  # fmt: skip
        words.append(
            f"imagebuilder gc --keep {keep} to remove {images}, {layers} and {packages} "
            f"({format_size(gone.package_bytes)})"
        )
    if not words:
        return f"--keep {keep} needs everything: keep fewer versions, or add a disk"
    return f"run {', and '.join(words)}"


def measure_tree(tree: Tree) -> int:
    """Bytes of the objects of its repository and of the releases' own files, each file once.

    Roots are links to the objects.  A tree of 100,000 objects takes half a second.
    """
    seen: set[int] = set()
    total = 0
    for top in (tree.repo / "objects", tree.http / "releases"):
        for entry in files_below(top):
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                total += info.st_size if info.st_ino not in seen else 0
                seen.add(info.st_ino)
    return total


def files_below(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every file below a folder; skips what does not exist or disappears."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path))
        else:
            yield entry


def prune(
    settings: Settings, tree: Tree, ui: Ui, *, keep: int, refused: Sequence[Path] = ()
) -> Pruned:
    """Remove old releases, images, layers and packages; returns what it removed and freed.

    Keeps the newest `keep` releases of each profile, and those in a channel, pinned, kept or in
    use; keeps packages of the readable lock files `refused` for another attempt.  Raises what
    collect_releases() and collect_garbage() raise.
    """
    places = (settings.state, tree.path)
    before = free_bytes(places)
    releases = collect_releases(tree, ui, Caution(), keep=keep, dry_run=False)
    images: tuple[str, ...] = ()
    if Store(settings.state / "store").is_there():
        locks = find_readable(refused, ui)
        images = collect_garbage(settings, ui, keep=keep, dry_run=False, locks=locks).images
    return Pruned(
        images=images,
        releases=tuple(str(release) for release in releases.releases),
        freed=max(0, free_bytes(places) - before),
    )


def find_readable(refused: Sequence[Path], ui: Ui) -> list[Path]:
    """Those of these lock files that are whole; the others must not keep old images."""
    found = []
    for path in refused:
        try:
            load_lock(path)
        except InputError as error:
            ui.warn(f"ignoring a refused lock: {error}")
        else:
            found.append(path)
    return found


def free_bytes(places: Sequence[Path]) -> int:
    """The free bytes of the file systems of these places, each file system counted once."""
    devices = {place.stat().st_dev: place for place in places}
    found = (os.statvfs(place) for place in devices.values())
    return sum(stat.f_bfree * stat.f_frsize for stat in found)
