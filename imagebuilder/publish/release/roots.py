# SPDX-License-Identifier: Apache-2.0
"""The published root of a release, restored from its commit.

A node may have the root mounted, so only damaged paths are replaced, one by one.
"""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.files import keep_file, move_away, move_in, sync_filesystem
from imagebuilder.image.types import Image
from imagebuilder.process import run
from imagebuilder.publish.release.repo import check_out
from imagebuilder.publish.release.verify import DamagedPath, How, find_changes
from imagebuilder.store.objects import (
    Folder,
    Hasher,
    object_path,
    read_commit,
    read_folder,
    write_dirmeta,
)
from imagebuilder.store.repository import Store
from imagebuilder.store.verify import ReadLimit, file_sum
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui, format_count


def restore_root(source: Store, image: Image, tree: Tree, ui: Ui) -> None:
    """Restore a root from its commit, with the objects of `source`.

    Raises WorkError if `source` is damaged too.
    """
    root = tree.root(image.release)
    some, most = is_folder(root), image.root.most_bytes
    if some and not find_changes(tree.repo, image.root.commit, root, most):
        return
    with (
        ui.step(f"Restoring the root of {image.name}") as step,
        workplace(tree.path, new_id(f"restore-{image.profile}")) as work,
    ):
        number = restore_tree(source, tree, image.root.commit, root, work, most)
        step.remark(format_count(number, "path") if some else "all of it")


def restore_tree(
    source: Store, tree: Tree, commit: str, root: Path, work: Path, most: int | None = None
) -> int:
    """Restore `root` from `commit`, which the tree's repository and `source` have.

    `work` is an empty folder on the tree's file system.  A file beyond `most` bytes of them all is
    damaged.  Returns the number of restored paths.  Raises WorkError if `source` is damaged too.
    """
    repo = Store(tree.repo)
    if not is_folder(root):
        check_out(repo, commit, work / "root")
        sync_filesystem(work)
        if os.path.lexists(root):
            move_away(root, work / "old")
        root.parent.mkdir(exist_ok=True)
        move_in(work / "root", root)
    changes = find_changes(source.path, commit, root, most)
    for number, change in enumerate(changes):
        place = work / str(number)
        place.mkdir()
        restore(source, repo, commit, root, change, place)
    return len(changes)


def is_folder(root: Path) -> bool:
    """Whether this is a folder, and not a link to one."""
    return root.is_dir() and not root.is_symlink()


def restore(
    source: Store, repo: Store, commit: str, root: Path, change: DamagedPath, work: Path
) -> None:
    """Restore one path; `work` is an empty folder on the same file system."""
    path = root / change.path
    wanted = find_entry(source.path, commit, change.path)
    if change.how is How.META and isinstance(wanted, tuple):
        write_dirmeta(source.path, wanted[1], os.fspath(path))
        return
    if change.how is not How.CHANGED and os.path.lexists(path):
        move_away(path, work / "old")
    if isinstance(wanted, tuple):
        words = ("--force-copy", f"--subpath=/{change.path}", commit, work / "new")
        source.ostree("checkout", *words)
        sync_filesystem(work)
        move_in(work / "new", path)
    elif wanted:
        # The repository shares the file with the root, so it has the same damage.
        kept = repo.path / "objects" / object_path(wanted, "file")
        place_object(source, wanted, kept, work / "object")
        place_file_of(kept, path, work / "new")


def place_object(source: Store, checksum: str, place: Path, staged: Path) -> None:
    """Give a file its name with the content, owner, mode and attributes of its object."""
    valid = source.path / "objects" / object_path(checksum, "file")
    limit = ReadLimit(valid.lstat().st_size)  # any larger file differs
    if os.path.lexists(place) and file_sum(os.fspath(place), Hasher(), limit) == checksum:
        return
    copy_file(valid, staged)
    if file_sum(os.fspath(staged), Hasher()) != checksum:
        raise WorkError(
            "could not be restored: it is also damaged in the image's source repository",
            where=os.fspath(place),
            hint="run imagebuilder fsck there to see what is damaged, and build the image again",
        )
    name_staged(staged, place)


def place_file_of(kept: Path, path: Path, staged: Path) -> None:
    """Give the root a file of the repository as check_out() does: links and empty files copied."""
    if kept.is_symlink() or kept.stat().st_size == 0:
        copy_file(kept, staged)
    else:
        os.link(kept, staged)
    name_staged(staged, path)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file or a link with owner, mode and attributes, sharing blocks where that works."""
    run(["cp", "--archive", "--reflink=auto", "--", source, target])


def name_staged(staged: Path, place: Path) -> None:
    """Give a complete file or link its name."""
    if staged.is_symlink():
        move_in(staged, place)
    else:
        keep_file(staged, place)


def find_entry(repo: Path, commit: str, path: str) -> str | tuple[str, str] | None:
    """What a commit has at a path: the checksum of a file, both of a folder, or None."""
    tree, meta = read_commit(repo, commit)
    entry: str | tuple[str, str] | None = (tree, meta)
    for name in () if path == "." else path.split("/"):
        if not isinstance(entry, tuple):
            return None
        folder: Folder = read_folder(repo, entry[0])
        entry = folder.folders.get(name) or folder.files.get(name)
    return entry
