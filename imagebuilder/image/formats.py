# SPDX-License-Identifier: Apache-2.0
"""An image as files: the boot triple with the root as a tree, as squashfs or as erofs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import close, filling, move_in, scratch, sync_filesystem
from imagebuilder.image.types import read_image
from imagebuilder.lock.storage import make_folder
from imagebuilder.process import check_tools, run
from imagebuilder.rootkind import Format, name_of
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.workplace import remove_tree
from imagebuilder.ui import Ui

# mksquashfs takes a quarter of the memory unless told (osbuild #2426).
SQUASHFS_MEMORY = "1G"
# Whoever reads a byte over NFS fetches and unpacks its block.  What a boot reads of a root was
# 64 MB in blocks of 1 MiB and 39 MB in these, for a file that is 2 % larger.
SQUASHFS_BLOCK = "256K"
# As large as what LZ4 looks back upon: larger clusters cost reads and save next to nothing.
EROFS_LEVEL, EROFS_CLUSTER = 9, 65_536
PACKERS: Mapping[Format, str] = {Format.SQUASHFS: "mksquashfs", Format.EROFS: "mkfs.erofs"}


def export_image(
    store: Store,
    image: ImageRef,
    folder: Path,
    ui: Ui,
    *,
    packed: Format | None = None,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write the files of `image` into `folder`, which appears only when complete.

    The root is a tree, or one file where it is to be `packed`.
    A tree has setuid programs in it: only root may enter its folder.  Packed, everything belongs to
    `owner` (uid and gid).  Else there are hard links where the store is on the same filesystem: the
    files must not be edited.
    Raises InputError when `folder` exists, FullError for a full disk.
    """
    if folder.exists():
        raise InputError("exists already", where=os.fspath(folder), hint="name a new folder")
    if packed:
        check_packer(packed)
    made = read_image(store, image)
    make_folder(folder.parent)
    hint = "free some space there, or name a folder on another disk"
    with filling(folder.parent, hint), scratch(folder.parent, ".imagebuilder-export-") as work:
        partial = work / folder.name
        with ui.step(f"Exporting {image.name}"):
            checkout(store, image.commit, partial, copies=packed is not None)
            close(partial)
            checkout(store, made.root.commit, partial / "root")
        if packed:
            target, epoch = partial / name_of(packed), made.epoch
            with ui.step(f"Packing {target.name}"):
                pack_root(partial / "root", target, packed, epoch=epoch, commit=made.root.commit)
                remove_tree(partial / "root")
            give(partial, owner)
        sync_filesystem(partial)
        move_in(partial, folder)


def checkout(store: Store, commit: str, target: Path, *, copies: bool = False) -> None:
    """Check `commit` out: hard links, or copies, also where it is another filesystem."""
    same = target.parent.stat().st_dev == store.path.stat().st_dev
    store.checkout(commit, target, links=same and not copies)


def give(folder: Path, owner: tuple[int, int] | None) -> None:
    """Open a folder to all, and give it and its files, none of which is the store's, away."""
    folder.chmod(0o755)
    if owner is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, *owner, follow_symlinks=False)


def check_packer(packed: Format) -> None:
    """Raise HostError when the program that packs a root so is missing."""
    check_tools(PACKERS[packed])


def pack_root(tree: Path, target: Path, packed: Format, *, epoch: int, commit: str) -> None:
    """Pack `tree`, the root of that OSTree commit, into `target`: same in, same bytes out."""
    check_packer(packed)
    if packed is Format.SQUASHFS:
        make_squashfs(tree, target, epoch)
    else:
        make_erofs(tree, target, epoch, commit)


def make_squashfs(tree: Path, target: Path, epoch: int) -> None:
    """Pack `tree` reproducibly: zstd, every time stamp `epoch`."""
    run(
        ["mksquashfs", tree, target, "-quiet", "-no-progress", "-noappend",
         "-comp", "zstd", "-Xcompression-level", "3", "-b", SQUASHFS_BLOCK, "-mem", SQUASHFS_MEMORY,
         "-mkfs-time", str(epoch), "-all-time", str(epoch)]
    )  # fmt: skip


def make_erofs(tree: Path, target: Path, epoch: int, commit: str) -> None:
    """Pack `tree` reproducibly: LZ4, every time stamp `epoch`, a UUID made from `commit`.

    -T is for all files, not only for the whole, in every version (mkfs.erofs(1)).
    """
    done = run(
        ["mkfs.erofs", "--quiet", f"-zlz4hc,{EROFS_LEVEL}", f"-C{EROFS_CLUSTER}", f"-T{epoch}",
         f"-U{uuid.UUID(commit[:32])}", target, tree]
    )  # fmt: skip
    # Its status is 0 even if it could not write what it keeps in memory to the end.
    if told := [line for line in done.stderr.splitlines() if line.startswith("<E>")]:
        raise WorkError(
            f"mkfs.erofs could not write: {told[0].removeprefix('<E>').strip()}",
            where=os.fspath(target),
            hint="look if the disk is full (df) or fails (dmesg), then run the command again",
        )
