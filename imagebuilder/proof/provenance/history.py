# SPDX-License-Identifier: Apache-2.0
"""What each step of a chain of layers changed, told from their commits.

OSTree compares checksums of folders: what two layers share is not looked at (ostree-diff(1)).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

from imagebuilder.image.types import Image, ImageLayer
from imagebuilder.steps.initrd import InitrdStep
from imagebuilder.store.repository import Store

LINE = re.compile(r"([AMD])    (/.*)")
# `step` of the inputs of steps that install packages, without its version.
INSTALLING = ("bootstrap", "packages")
# Between the titles of layers of which only the last is in the store.
OR = " or "
AT_ONCE = 4  # processes that compare two layers


@dataclass(frozen=True)
class LayerHistory:
    """The steps that made and changed each path, by title, in the order of the build.

    A path that `touched` does not have is as `first` left it.  `removed` has the last step that
    removed a path, or a folder with all that was in it.
    """

    first: str
    touched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)

    def steps(self, path: str) -> tuple[str, ...]:
        """The steps that made a path and changed it."""
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

    Layers that the store no longer has are told together with the next one: `A or B`.
    """
    known = known_layers(store, image)
    commits = [commit for _, commit in known]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = pool.map(lambda pair: store.ostree("diff", *pair), pairwise(commits))
        return fold(known[0][0], zip((title for title, _ in known[1:]), told, strict=True))


def known_layers(store: Store, image: Image) -> list[tuple[str, str]]:
    """Title and commit of each layer of the root that the store has; the last is the root."""
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


def fold(first: str, changes: Iterable[tuple[str, str]]) -> LayerHistory:
    """The history from what `ostree diff` says of each layer after the first, by title."""
    touched: dict[str, tuple[str, ...]] = {}
    removed: dict[str, str] = {}
    for title, said in changes:
        for verb, path in LINE.findall(said):
            if verb == "D":
                touched.pop(path, None)
                removed[path] = title
            elif verb == "A":
                touched[path] = (title,)
                removed.pop(path, None)
            else:
                touched[path] = (*touched.get(path, (first,)), title)
    return LayerHistory(first, touched, removed)


def chain_of(image: Image) -> tuple[ImageLayer, ...]:
    """The layers of the root: all but the one beside it, which is the initrd's."""
    return tuple(layer for layer in image.layers if layer.title != InitrdStep.title)


def installing(image: Image) -> frozenset[str]:
    """The titles of the layers that install packages."""
    return frozenset(
        layer.title
        for layer in chain_of(image)
        if str(layer.inputs.get("step", "")).startswith(INSTALLING)
    )
