# SPDX-License-Identifier: Apache-2.0
"""Image -> Release: the files of an image under a path that never changes again.

    work/<id>/{root,http}   staged: root a hard-link checkout, boot files copied, script rendered;
                            one sync of the file system; every boot file read back and compared
    roots/PROFILE/VERSION   renamed in first, then VERSION.squashfs beside it, if there is one
    http/releases/...       then this, which makes the release exist

A killed command leaves a folder in work/, which the next command sweeps, or a root without its
release, which the next publish replaces and gc removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError
from imagebuilder.files import exchange, make_folder, move_away, move_in, sync_filesystem
from imagebuilder.folders import date_last, folders_in
from imagebuilder.image.types import Image, load_image
from imagebuilder.lock.storage import check_free
from imagebuilder.publish.journal import PUBLISH, Event, append
from imagebuilder.publish.release.content import (
    SQUASHFS,
    SUMS,
    check_staged,
    read_sums,
    record_verified,
)
from imagebuilder.publish.release.packed import pack, share
from imagebuilder.publish.release.repo import (
    Commits,
    bring_root,
    check_out,
    has_root_of,
)
from imagebuilder.publish.release.stage import (
    find_twins,
    link_files,
    stage_files,
    write_sums,
)
from imagebuilder.publish.space import HINT
from imagebuilder.rootkind import Format, name_of
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui

SPARE = 200_000_000  # bytes for kernel, initrd and the tree's own metadata


def make_release(
    source: Store, ref: ImageRef, image: Image, tree: Tree, ui: Ui, *, packing: Sequence[Format]
) -> tuple[str, ...]:
    """Stage, sync, verify and move in a new release; the caller has its lock.

    Returns the names of its packed roots.
    """
    release = image.release
    place = tree.release(release)
    root = tree.root(release)
    with workplace(tree.path, new_id(f"publish-{release.profile}")) as work:
        check_space(image, tree)
        for folder in (place.parent, root.parent):
            make_folder(folder)
        with ui.step(f"Copying the root of {release}"):
            commits = Commits(ref.commit, image.root.commit)
            bring_root(source, tree, release, commits, work, image.root.most_bytes)
        with ui.step("Copying the boot files"):
            check_out(Store(tree.repo), ref.commit, work / "image")
            twins = find_twins(tree, image)
            sums = stage_files(work / "image", image, work / "http", twins)
        sums |= pack(work / "root", work / "http", image, packing, ui)
        with ui.step("Syncing and reading back"):
            write_sums(work / "http", sums)
            sync_filesystem(work)
            check_staged(work / "http", sums)
        move_release_in(tree, release, work)
    record_verified(tree, release)
    return tuple(map(name_of, packing))


def complete_release(
    image: Image, tree: Tree, ui: Ui, *, packing: Sequence[Format]
) -> tuple[str, ...]:
    """Add the packed roots that a checked release lacks; returns their names.

    No file of it is changed: a folder with links to them and the new files replaces its folder.
    """
    release = image.release
    place = tree.release(release)
    sums = read_sums(place)
    lacking = [packed for packed in packing if name_of(packed) not in sums]
    if not lacking:
        return ()
    with workplace(tree.path, new_id(f"pack-{release.profile}")) as work:
        staged = work / "http"
        link_files(place, staged)
        root = tree.root(release)
        sums |= pack(root, staged, image, lacking, ui)
        with ui.step("Syncing and reading back"):
            write_sums(staged, sums)
            shutil.copystat(place, staged)
            sync_filesystem(work)
            check_staged(staged, sums)
        append(tree, published(release, staged))
        if SQUASHFS in sums:
            share(tree, release, staged / SQUASHFS, work)
        exchange(staged, place)
    record_verified(tree, release)
    return tuple(map(name_of, lacking))


def published(release: ReleaseName, staged: Path) -> Event:
    """The journal's event for a release whose files are in `staged`."""
    sums = digest_of_file(staged / SUMS)
    return Event(PUBLISH, release.profile, release.version, sums=sums)


def move_release_in(tree: Tree, release: ReleaseName, work: Path) -> None:
    """Move in the root, then the folder that makes the release exist; both or neither."""
    place = tree.release(release)
    root = tree.root(release)
    if root.exists():
        move_away(root, work / "unfinished")  # a command was killed between the two
    append(tree, published(release, work / "http"))
    move_in(work / "root", root)
    try:
        if (work / "http" / SQUASHFS).exists():
            share(tree, release, work / "http" / SQUASHFS, work)
        move_in(work / "http", place)
    except OSError:
        if not place.exists():
            tree.shared_squashfs(release).unlink(missing_ok=True)
            move_away(root, work / "root")
        raise
    date_last(place, (place.with_name(name) for name in folders_in(place.parent)))


def check_space(image: Image, tree: Tree) -> None:
    """Refuse the first root of a profile if it cannot fit.

    How much a later root shares with its predecessors is known only after the pull.
    """
    if has_root_of(tree, image.profile):
        return
    check_free(tree.path, image.root.size + SPARE, f"to publish {image.name}", HINT)


def check_same(tree: Tree, image: Image) -> None:
    """Raise InputError when another image is published under this name."""
    if load_image(tree.release(image.release)) != image:
        raise InputError(
            "another image is published under this name",
            where=image.name,
            hint="compare them with imagebuilder diff; unpublish one, or build a new version",
        )
