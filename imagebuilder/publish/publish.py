# SPDX-License-Identifier: Apache-2.0
"""Publish an image: make its release or complete the existing one, then move its channel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import HostError, ImagebuilderError, one_line
from imagebuilder.image.types import read_image
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.publish.channel.gate import check_reason, pass_gate
from imagebuilder.publish.channel.move import Moved, check_channel, moving, point
from imagebuilder.publish.find import changing
from imagebuilder.publish.journal import SET
from imagebuilder.publish.release.content import check_release
from imagebuilder.publish.release.make import check_same, complete_release, make_release
from imagebuilder.publish.release.packed import needed_formats, restore_share
from imagebuilder.publish.release.repo import drop_unneeded
from imagebuilder.publish.release.roots import restore_root
from imagebuilder.publish.release.stage import check_cmdline
from imagebuilder.publish.space import space_needed
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class Published:
    """A release and its channel; `made` is whether it is new, `packed` its new packed files.

    `assumed` are devices that the proof knows nothing about, with the recipe's reason.
    """

    release: ReleaseName
    folder: Path
    made: bool
    packed: tuple[str, ...]
    moved: Moved
    assumed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {
            **self.moved.as_json(),
            "folder": os.fspath(self.folder),
            "made": self.made,
            "packed": list(self.packed),
            "assumed": list(self.assumed),
        }

    def render(self) -> str:
        added = f"added {', '.join(self.packed)}" if self.packed else "already published"
        assumed = "".join(f"\nassumed, not proved: {one_line(device)}" for device in self.assumed)
        said = "published" if self.made else added
        return f"{self.release}: {said}\n{self.moved.render()}{assumed}"


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
    """Publish the image `ref` of the repository `source` and point `channel` to it.

    `source` is a builder's store or any bare repository with the image's commit and its root's,
    including the tree's own `repo`.  The root is packed in `formats`, and in those that the image
    or a node of the profile boots.  For the channel stable, what promote() needs is checked before
    anything is made.  Raises HostError if the tree has no space, DamagedError if the release exists
    and is damaged, InputError if another image has its name.
    """
    check_channel(channel)
    check_reason(untested)
    release = ref.release

    def waiting() -> None:
        ui.note(f"waiting for another command that publishes {release}")

    try:
        with space_needed(tree.path), changing(tree, ui):
            with (
                file_lock(source.gc_lock, shared=True),  # first: see locks.TURN_S
                file_lock(tree.lock(f"release-{release}"), waiting=waiting),
            ):
                image = read_image(source, ref)
                check_cmdline(image)
                packing = needed_formats(tree, image, formats)
                made = not tree.release(release).is_dir()
                if not made:
                    restore_share(tree, release, ui)
                    check_release(tree, release, root=False)
                    check_same(tree, image)
                    restore_root(source, image, tree, ui)
                    check_release(tree, release)
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
    folder = tree.release(release)
    return Published(release, folder, made, packed, moved, image.assumed)


def drop_leftovers(tree: Tree) -> None:
    """Remove what a failure left in the repository, unless another command is running.

    gc removes what cannot be removed now; the person must see the original failure.
    """
    if not Store(tree.repo).is_there() or is_locked(tree.lock("gc"), shared=True):
        return
    with contextlib.suppress(ImagebuilderError, OSError), file_lock(tree.lock("gc")):
        drop_unneeded(tree)
