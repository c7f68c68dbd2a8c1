# SPDX-License-Identifier: Apache-2.0
"""What a commit needs when it is checked out.

A folder may be in a commit any number of times: forty that each have the one before twice are forty
small objects, and more paths than any disk takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    begun: dict[str, Measured] = {}  # the folders above the one that is read
    todo = [top]
    while todo:
        tree = todo[-1]
        if tree not in known and tree not in begun:
            begun[tree] = measure_folder(read_folder(repo, tree))
            todo += begun[tree].below.keys() - known.keys()
            continue
        todo.pop()
        if tree not in known:
            known[tree] = add(begun.pop(tree), known)
    return known[top]


@dataclass(frozen=True)
class Measured:
    """A folder alone, and how often each folder is in it."""

    own: Extent
    below: Counter[str]


def measure_folder(folder: Folder) -> Measured:
    names = [*folder.files, *folder.folders]
    size = max(BLOCK, sum(len(name) + ENTRY for name in names))
    below = Counter(tree for tree, _ in folder.folders.values())
    return Measured(Extent(1 + len(folder.files), size), below)


def add(measured: Measured, known: Mapping[str, Extent]) -> Extent:
    own, below = measured.own, [(known[tree], times) for tree, times in measured.below.items()]
    return Extent(
        own.paths + sum(each.paths * times for each, times in below),
        own.size + sum(each.size * times for each, times in below),
    )
