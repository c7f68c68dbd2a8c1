# SPDX-License-Identifier: Apache-2.0
"""Image -> Release: the files of an image under a path that never changes again.

    work/<id>/{root,http}   staged: root a hard-link checkout, boot files copied, script rendered;
                            one sync of the file system; every boot file read back and compared
    roots/PROFILE/VERSION   renamed in first, then VERSION.squashfs beside it, if there is one
    http/releases/...       then this, which makes the release exist
    channels/...            then the channel

A command that is killed leaves a folder in work/, which the next one sweeps, or a root without its
release, which publishing again replaces and gc removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.files import exchange, make_folder, move_away, move_in, sync_filesystem
from imagebuilder.image.types import Image, load_image, read_image
from imagebuilder.lock.storage import check_free
from imagebuilder.locks import held, is_held
from imagebuilder.publish.anchors import SUMS
from imagebuilder.publish.channel import Moved, check_channel, moving, point
from imagebuilder.publish.content import (
    SQUASHFS,
    check_release,
    check_staged,
    read_sums,
    record_verified,
)
from imagebuilder.publish.find import ReleaseName, changing
from imagebuilder.publish.gate import check_reason, pass_gate
from imagebuilder.publish.journal import PUBLISH, SET, Event, append
from imagebuilder.publish.packed import mend_share, needed_formats, pack, share
from imagebuilder.publish.repo import Commits, bring_root, check_out, drop_unneeded, has_root_of
from imagebuilder.publish.roots import restore_root
from imagebuilder.publish.space import HINT, space_needed
from imagebuilder.publish.stage import (
    check_cmdline,
    find_twins,
    link_files,
    stage_files,
    write_sums,
)
from imagebuilder.rootkind import Format, name_of
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui

SPARE = 200_000_000  # bytes for kernel, initrd and the tree's own metadata


@dataclass(frozen=True)
class Published:
    """A release and its channel; `made` is whether it is new, `packed` its new packed files."""

    release: ReleaseName
    folder: Path
    made: bool
    packed: tuple[str, ...]
    moved: Moved

    def as_json(self) -> dict[str, Json]:
        """As a value for programs."""
        return {
            "profile": self.release.profile,
            "version": self.release.version,
            "folder": os.fspath(self.folder),
            "made": self.made,
            "packed": list(self.packed),
            "channel": self.moved.channel,
            "previous": self.moved.previous or None,
            "report": self.moved.passage.report or None,
            "untested": self.moved.passage.reason or None,
        }

    def render(self) -> str:
        """As sentences."""
        added = f"{', '.join(self.packed)} added" if self.packed else "is published already"
        return f"{self.release}: {'published' if self.made else added}\n{self.moved.render()}"


def publish(
    source: Store,
    ref: ImageRef,
    tree: Tree,
    ui: Ui,
    *,
    channel: str,
    formats: Sequence[Format] = (),
    untested: str = "",
) -> Published:
    """Publish the image `ref` of the repository `source` and let `channel` point to it.

    `source` is a builder's store or any bare repository with the image's commit and its root's,
    the tree's own `repo` included.  The root is packed in `formats`, and as the image or a node of
    the profile boots it.  For the channel stable it needs what promote() asks for, before anything
    is made.  Raises HostError when the tree cannot take it, DamagedError when the release exists
    and is not whole, InputError when another image has its name.
    """
    check_channel(channel)
    check_reason(untested)
    release = ReleaseName(ref.profile, ref.version)

    def waiting() -> None:
        ui.note(f"{release} is being published: waiting for it")

    try:
        with space_needed(tree.path), changing(tree, ui):
            with (
                held(tree.lock(f"release-{release}"), waiting=waiting),
                held(source.path.parent / "locks" / "gc", shared=True),
            ):
                image = read_image(source, ref)
                check_cmdline(image)
                packing = needed_formats(tree, image, formats)
                made = not tree.release(release.profile, release.version).is_dir()
                if not made:
                    mend_share(tree, release, ui)
                    check_release(tree, release.profile, release.version, root=False)
                    check_same(tree, image)
                    restore_root(source, image, tree, ui)
                    check_release(tree, release.profile, release.version)
                passage = pass_gate(
                    tree,
                    release,
                    ui,
                    channel=channel,
                    untested=untested,
                    image=image,
                )
                if made:
                    packed = make_release(source, ref, image, tree, ui, packing=packing)
                else:
                    packed = complete_release(image, tree, ui, packing=packing)
            with moving(tree, release.profile):
                moved = point(tree, release, channel, SET, passage)
    except HostError:
        drop_leftovers(tree)
        raise
    folder = tree.release(release.profile, release.version)
    return Published(release, folder, made, packed, moved)


def make_release(
    source: Store, ref: ImageRef, image: Image, tree: Tree, ui: Ui, *, packing: Sequence[Format]
) -> tuple[str, ...]:
    """Stage, sync, verify and move in a release that is not there; the caller has its lock.

    Returns the names of its packed roots.
    """
    release = ReleaseName(image.profile, image.version)
    place = tree.release(release.profile, release.version)
    root = tree.root(release.profile, release.version)
    with workplace(tree.path, new_id(f"publish-{release.profile}")) as work:
        check_space(image, tree)
        for folder in (place.parent, root.parent):
            make_folder(folder)
        with ui.step(f"root of {release}"):
            bring_root(source, tree, release, Commits(ref.commit, image.root.commit), work)
        with ui.step("boot files"):
            check_out(Store(tree.repo), ref.commit, work / "image")
            twins = find_twins(tree, image)
            sums = stage_files(work / "image", image, work / "http", twins)
        sums |= pack(work / "root", work / "http", image, packing, ui)
        with ui.step("sync and read back"):
            write_sums(work / "http", sums)
            sync_filesystem(work)
            check_staged(work / "http", sums)
        move_release_in(tree, release, work)
    record_verified(tree, release.profile, release.version)
    return tuple(map(name_of, packing))


def complete_release(
    image: Image, tree: Tree, ui: Ui, *, packing: Sequence[Format]
) -> tuple[str, ...]:
    """Add the packed roots that a release which was just checked lacks; their names.

    No file of it is touched: a folder of links to them and the new ones takes its place.
    """
    release = ReleaseName(image.profile, image.version)
    place = tree.release(release.profile, release.version)
    sums = read_sums(place)
    lacking = [packed for packed in packing if name_of(packed) not in sums]
    if not lacking:
        return ()
    with workplace(tree.path, new_id(f"pack-{release.profile}")) as work:
        staged = work / "http"
        link_files(place, staged)
        root = tree.root(release.profile, release.version)
        sums |= pack(root, staged, image, lacking, ui)
        with ui.step("sync and read back"):
            write_sums(staged, sums)
            shutil.copystat(place, staged)
            sync_filesystem(work)
            check_staged(staged, sums)
        append(tree, published(release, staged))
        if SQUASHFS in sums:
            share(tree, release, staged / SQUASHFS, work)
        exchange(staged, place)
    record_verified(tree, release.profile, release.version)
    return tuple(map(name_of, lacking))


def published(release: ReleaseName, staged: Path) -> Event:
    """What the journal says of a release whose files are in `staged`."""
    sums = digest_of_file(staged / SUMS)
    return Event(PUBLISH, release.profile, release.version, sums=sums)


def move_release_in(tree: Tree, release: ReleaseName, work: Path) -> None:
    """Root first, then the folder that makes the release exist; nothing if one fails."""
    place = tree.release(release.profile, release.version)
    root = tree.root(release.profile, release.version)
    if root.exists():
        move_away(root, work / "unfinished")  # somebody was killed between the two
    append(tree, published(release, work / "http"))
    move_in(work / "root", root)
    try:
        if (work / "http" / SQUASHFS).exists():
            share(tree, release, work / "http" / SQUASHFS, work)
        move_in(work / "http", place)
    except OSError:
        if not place.exists():
            tree.shared_squashfs(release.profile, release.version).unlink(missing_ok=True)
            move_away(root, work / "root")
        raise


def check_space(image: Image, tree: Tree) -> None:
    """Refuse to begin what cannot end: a first root of a profile.

    What a later one shares with its predecessors only the pull finds out.
    """
    if has_root_of(tree, image.profile):
        return
    check_free(tree.path, image.root.size + SPARE, f"to publish {image.name}", HINT)


def check_same(tree: Tree, image: Image) -> None:
    """Raise InputError when another image is published under this name."""
    if load_image(tree.release(image.profile, image.version)) != image:
        raise InputError(
            "another image is published under this name",
            where=image.name,
            hint="imagebuilder diff compares images; unpublish the release, or build a new version",
        )


def drop_leftovers(tree: Tree) -> None:
    """Give back what a failure left in the repository, unless somebody else is at work.

    What cannot be given back now is for gc; the failure itself is what the person must see.
    """
    if not Store(tree.repo).is_there() or is_held(tree.lock("gc")):
        return
    with contextlib.suppress(ImagebuilderError, OSError), held(tree.lock("gc")):
        drop_unneeded(tree)
