# SPDX-License-Identifier: Apache-2.0
"""What a commit needs when it is checked out.

A folder may be in a commit any number of times: forty that each have the one before twice are forty
small objects, and more paths than any disk takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imagebuilder.store.objects import Folder, read_commit, read_folder

ENTRY = 40  # bytes of a name in its folder besides its characters, at most
BLOCK = 4096  # bytes of the smallest folder


@dataclass(frozen=True)
class Extent:
    """The files, links and folders of a commit, and the bytes of its folders, at most.

    Files are shared with the repository, and take no bytes.
    """

    paths: int
    size: int


def measure(repo: Path, commit: str) -> Extent:
    """The extent of a commit.  Raises DamagedObjectError."""
    top, _ = read_commit(repo, commit)
    known: dict[str, Extent] = {}
    todo = [(top, read_folder(repo, top))]
    while todo:
        tree, folder = todo[-1]
        if lacking := {below for below, _ in folder.folders.values()} - known.keys():
            todo += [(below, read_folder(repo, below)) for below in lacking]
            continue
        known[tree] = add(folder, known)
        todo.pop()
    return known[top]


def add(folder: Folder, known: dict[str, Extent]) -> Extent:
    """The extent of a folder from those of the folders in it."""
    names = [*folder.files, *folder.folders]
    below = [known[tree] for tree, _ in folder.folders.values()]
    size = max(BLOCK, sum(len(name) + ENTRY for name in names))
    return Extent(
        1 + len(folder.files) + sum(each.paths for each in below),
        size + sum(each.size for each in below),
    )
