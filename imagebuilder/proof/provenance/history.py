# SPDX-License-Identifier: Apache-2.0
"""What each step of a chain of layers changed, by comparing their commits.

A folder's checksum covers everything below it, so folders that two layers share are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from imagebuilder.image.types import Image, ImageLayer
from imagebuilder.steps.initrd import InitrdStep
from imagebuilder.store.objects import EMPTY, read_commit, read_folder
from imagebuilder.store.repository import Store

ADDED, MODIFIED, DELETED = "A", "M", "D"
# How `step` begins in the inputs of steps that install packages.
INSTALLING = ("bootstrap", "packages")
# Joins the titles of layers of which the store has only the last.
OR = " or "


@dataclass(frozen=True)
class LayerHistory:
    """The titles of the steps that made and changed each path, in the order of the build.

    Paths that are not in `touched` are as `first` made them.  `removed` has the last step that
    removed a path, or a folder with its content.
    """

    first: str
    touched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)

    def steps(self, path: str) -> tuple[str, ...]:
        return self.touched.get(path, (self.first,))

    def remover(self, path: str) -> str:
        """The step that removed a path or a folder above it, "" if none did."""
        while path:
            if path in self.removed:
                return self.removed[path]
            path = path.rpartition("/")[0]
        return ""


def read_history(store: Store, image: Image) -> LayerHistory:
    """The history of an image's root.  Raises WorkError.

    A layer that the store no longer has counts as one with the next: `A or B`.
    """
    known = known_layers(store, image)
    trees = [read_commit(store.path, commit)[0] for _, commit in known]
    changes = (differences(store.path, old, new) for old, new in pairwise(trees))
    return fold(known[0][0], zip((title for title, _ in known[1:]), changes, strict=True))


def differences(repo: Path, old: str, new: str) -> Iterator[tuple[str, str]]:
    """The differences between two dirtrees ("": an empty one), as ostree-diff(1) shows them.

    Omits the content of a removed folder.  Raises DamagedObjectError.
    """
    todo = [("", old, new)]
    while todo:
        folder, old, new = todo.pop()
        if old == new:
            continue
        before, after = (read_folder(repo, tree) if tree else EMPTY for tree in (old, new))
        for name in (before.files.keys() | before.folders) - (after.files.keys() | after.folders):
            yield DELETED, f"{folder}/{name}"
        for name, checksum in after.files.items():
            if name not in before.files and name not in before.folders:
                yield ADDED, f"{folder}/{name}"
            elif before.files.get(name) != checksum:
                yield MODIFIED, f"{folder}/{name}"
        for name, (tree, meta) in after.folders.items():
            old_tree, old_meta = before.folders.get(name, ("", ""))
            if not old_tree and name not in before.files:
                yield ADDED, f"{folder}/{name}"
            elif old_meta != meta:
                yield MODIFIED, f"{folder}/{name}"
            todo.append((f"{folder}/{name}", old_tree, tree))


def known_layers(store: Store, image: Image) -> list[tuple[str, str]]:
    """The title and commit of each layer of the root that the store has; the last is the root."""
    found: list[tuple[str, str]] = []
    gone: list[str] = []
    chain = chain_of(image)
    for layer in chain:
        commit = image.root.commit if layer is chain[-1] else store.find_layer(layer.digest)
        if commit is None:
            gone.append(layer.title)
        else:
            found.append((OR.join((*gone, layer.title)), commit))
            gone.clear()
    return found


def fold(first: str, changes: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> LayerHistory:
    """The history from the differences of each layer after the first, by title."""
    touched: dict[str, tuple[str, ...]] = {}
    removed: dict[str, str] = {}
    for title, differing in changes:
        for verb, path in differing:
            if verb == DELETED:
                touched.pop(path, None)
                removed[path] = title
            elif verb == ADDED:
                touched[path] = (title,)
                removed.pop(path, None)
            else:
                touched[path] = (*touched.get(path, (first,)), title)
    return LayerHistory(first, touched, removed)


def chain_of(image: Image) -> tuple[ImageLayer, ...]:
    """The layers of the root: all except the initrd's."""
    return tuple(layer for layer in image.layers if layer.title != InitrdStep.title)


def installing(image: Image) -> frozenset[str]:
    """The titles of the layers that install packages."""
    return frozenset(
        layer.title
        for layer in chain_of(image)
        if str(layer.inputs.get("step", "")).startswith(INSTALLING)
    )
