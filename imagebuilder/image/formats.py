# SPDX-License-Identifier: Apache-2.0
"""An image as files: the boot triple with the root as a tree or as squashfs."""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.process import run
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.workplace import remove_tree
from imagebuilder.ui import Ui

# mksquashfs takes a quarter of the memory unless told (osbuild #2426).
SQUASHFS_MEMORY = "1G"


def export_image(store: Store, image: ImageRef, folder: Path, ui: Ui, *, squashfs: bool) -> None:
    """Write the files of `image` into `folder`, which appears only when complete.

    Hard links where the store is on the same filesystem: the files must not be edited.
    Raises InputError when `folder` exists.
    """
    if folder.exists():
        raise InputError("exists already", where=os.fspath(folder), hint="name a new folder")
    root = store.manifest(image)["root"]
    assert isinstance(root, dict)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ui.step(f"export {image.name}"):
            checkout(store, image.commit, partial)
            checkout(store, root["commit"], partial / "root")
        if squashfs:
            with ui.step("pack root.squashfs"):
                make_squashfs(
                    partial / "root", partial / "root.squashfs", image_epoch(store, image)
                )
                remove_tree(partial / "root")
        partial.rename(folder)
    finally:
        if partial.exists():
            remove_tree(partial)


def checkout(store: Store, commit: str, target: Path) -> None:
    """Check `commit` out: hard links, or copies on another filesystem."""
    same = target.parent.stat().st_dev == store.path.stat().st_dev
    store.checkout(commit, target, links=same)


def image_epoch(store: Store, image: ImageRef) -> int:
    """SOURCE_DATE_EPOCH of an image."""
    epoch = store.manifest(image)["epoch"]
    assert isinstance(epoch, int)
    return epoch


def make_squashfs(tree: Path, target: Path, epoch: int) -> None:
    """Pack `tree` reproducibly: zstd, 1 MiB blocks, every time stamp `epoch`."""
    run(
        ["mksquashfs", tree, target, "-quiet", "-no-progress", "-noappend",
         "-comp", "zstd", "-Xcompression-level", "3", "-b", "1M", "-mem", SQUASHFS_MEMORY,
         "-mkfs-time", str(epoch), "-all-time", str(epoch)]
    )  # fmt: skip
