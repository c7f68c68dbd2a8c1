# SPDX-License-Identifier: Apache-2.0
"""The checkout of a profile's last root, kept so that the next build need not make and remove one.

    trees/PROFILE/COMMIT.BOOT/     a hard-link checkout of COMMIT, written to by nobody

Two roots of a profile differ in few folders, and a folder's checksum covers all below it: to turn
one checkout into another takes as long as what differs, a checkout of 14,000 links half a second
and its removal longer.  Whoever takes the tree renames it away, so one process has it; who is
killed meanwhile leaves it among the throw-away directories.  It is not synced, so it counts until
the machine is started again; BOOT is what random(4) calls the boot id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.files import make_private, move_away, move_in
from imagebuilder.folders import matching
from imagebuilder.store.objects import (
    EMPTY,
    Folder,
    object_path,
    read_commit,
    read_folder,
    write_dirmeta,
)
from imagebuilder.store.repository import Store
from imagebuilder.store.upper import remove

TREES = "trees"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def keep_tree(state: Path, profile: str, commit: str, tree: Path) -> None:
    """Keep `tree`, a checkout of `commit` below `state`, in place of what is kept of `profile`.

    What was kept is moved beside `tree`.  If that fails, `tree` stays where it is: the image is
    complete, and the next build only takes longer.
    """
    folder = state / TREES / profile
    with suppress(OSError):  # a full disk, or another build took or kept a tree at this moment
        make_private(folder)
        for number, old in enumerate(list(folder.iterdir())):
            move_away(old, tree.with_name(f"{tree.name}.old{number}"))
        move_in(tree, folder / f"{commit}.{boot()}")


def take_tree(state: Path, store: Store, profile: str, commit: str, target: Path) -> None:
    """Make a hard-link checkout of `commit` at `target`, from the tree that is kept if one is.

    Raises WorkError.
    """
    for kept in find_trees(state, profile):
        if kept.suffix == f".{boot()}":
            with suppress(WorkError, OSError):
                move_away(kept, target)
                change_tree(store.path, target, kept.stem, commit)
                return
            remove(target)
    store.checkout(commit, target)


def find_trees(state: Path, profile: str = "*") -> Iterator[Path]:
    return matching(state / TREES, f"{profile}/*")


def boot() -> str:
    """What this start of the machine is called."""
    return BOOT_ID.read_text().strip()


def change_tree(repo: Path, tree: Path, old: str, new: str) -> None:
    """Make a checkout of one commit that of another.  Raises DamagedObjectError, OSError."""
    (old_top, old_meta), (new_top, new_meta) = read_commit(repo, old), read_commit(repo, new)
    if old_meta != new_meta:
        write_dirmeta(repo, new_meta, os.fspath(tree))
    change_folder(repo, tree, old_top, new_top)


def change_folder(repo: Path, folder: Path, old: str, new: str) -> None:
    """As change_tree() of two dirtrees; "" is an empty one.

    A folder gets its mode and owner after what is in it, as it may pass them on.
    """
    metas: list[tuple[str, Path]] = []
    todo = [(folder, old, new)]
    while todo:
        here, old, new = todo.pop()
        if old == new:
            continue
        before, after = (read_folder(repo, tree) if tree else EMPTY for tree in (old, new))
        change_files(repo, here, before, after)
        for name, (tree, meta) in after.folders.items():
            old_tree, old_meta = before.folders.get(name, ("", ""))
            if not old_meta:
                (here / name).mkdir()
            todo.append((here / name, old_tree, tree))
            if old_meta != meta:
                metas.append((meta, here / name))
        os.utime(here, ns=(0, 0))
    for meta, here in reversed(metas):
        write_dirmeta(repo, meta, os.fspath(here))


def change_files(repo: Path, folder: Path, before: Folder, after: Folder) -> None:
    """Make the files of a folder those of another, and remove what it has no longer."""
    # What is no longer there, or of another kind.
    for name in {*(before.files.keys() - after.files), *(before.folders.keys() - after.folders)}:
        remove(folder / name)
    for name, checksum in after.files.items():
        if before.files.get(name) != checksum:
            (folder / name).unlink(missing_ok=True)
            source = repo / "objects" / object_path(checksum, "file")
            os.link(source, folder / name, follow_symlinks=False)


def drop_trees(state: Path) -> None:
    """Remove all that is kept.  Nobody may build meanwhile."""
    for tree in list(find_trees(state)):
        remove(tree)
