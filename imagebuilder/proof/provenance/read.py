# SPDX-License-Identifier: Apache-2.0
"""Image + root -> Provenance, from packages' checksums, overlays' files and the layers.

Only files with a checksum recorded by a package are hashed: the commits identify all others.  A
build does not hash files again that the previous build verified
(imagebuilder/proof/memory.py).

What each step changed is found by comparing the commits of layers.  A folder's checksum covers
everything below it, so folders that two layers share are not read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.families.registry import family_of_distribution
from imagebuilder.families.shipped import Checksum, ShippedFile
from imagebuilder.image.types import Image, ImageLayer
from imagebuilder.proof.reading.provenance import (
    CONTENT,
    METADATA,
    Compared,
    Entries,
    Provenance,
    Trace,
    TraceKind,
    walk_root,
)
from imagebuilder.root import Root
from imagebuilder.steps.initrd import InitrdStep
from imagebuilder.store.objects import EMPTY, read_commit, read_folder
from imagebuilder.store.repository import Store

CONFIGURE = "configure "
ADDED, MODIFIED, DELETED = "A", "M", "D"
# How `step` begins in the inputs of steps that install packages.
INSTALLING = ("bootstrap", "packages")
# Joins the titles of layers of which the store has only the last.
OR = " or "


@dataclass(frozen=True)
class Placed:
    """A file of an overlay, as recorded in the inputs of the step that places it."""

    overlay: str
    mode: int
    owner: str
    digest: str = ""
    link: str = ""


@dataclass(frozen=True)
class Records:
    """The records about the paths of an image.

    `packages` are `name version` by name, `installing` the titles of layers that install packages.
    """

    history: LayerHistory
    shipped: Mapping[str, ShippedFile]
    placed: Mapping[str, Placed]
    packages: Mapping[str, str]
    installing: frozenset[str]


def read_provenance(
    store: Store,
    image: Image,
    root: Root,
    shipped: Mapping[str, ShippedFile] | None = None,
    entries: Entries | None = None,
    *,
    history: LayerHistory | None = None,
    known: Compared | None = None,
) -> Provenance:
    """The provenance of a root.  Raises InputError, WorkError.

    `shipped` is what the root's packages ship, `entries` are its paths and `history` is the
    image's, if they have been read.
    `known` are files that need not be hashed.
    """
    records = read_records(store, image, root, shipped, history)
    return trace_all(records, entries or dict(walk_root(root)), root, known)


def read_records(
    store: Store,
    image: Image,
    root: Root,
    shipped: Mapping[str, ShippedFile] | None = None,
    history: LayerHistory | None = None,
) -> Records:
    """What the root's packages and the image's layers record.  Raises InputError, WorkError."""
    return Records(
        history=history or read_history(store, image),
        shipped=shipped or family_of_distribution(image.distribution).shipped_files(root),
        placed=find_placed(image),
        packages={package.name: f"{package.name} {package.version}" for package in image.packages},
        installing=installing(image),
    )


def find_placed(image: Image) -> dict[str, Placed]:
    """The files that overlays place; a later one overrides an earlier one at its path."""
    found: dict[str, Placed] = {}
    for layer in chain_of(image):
        files = layer.inputs.get("files")
        if layer.title.startswith(CONFIGURE) and isinstance(files, Mapping):
            overlay = layer.title.removeprefix(CONFIGURE)
            found |= {str(path): parse_placed(overlay, str(text)) for path, text in files.items()}
    return found


def parse_placed(overlay: str, text: str) -> Placed:
    """`MODE OWNER:GROUP DIGEST` or `MODE OWNER:GROUP -> LINK` of steps/placed.py."""
    mode, owner, rest = text.split(" ", 2)
    link = rest.removeprefix("-> ") if rest.startswith("-> ") else ""
    return Placed(overlay, int(mode, 8), owner, "" if link else rest, link)


def trace_all(
    records: Records,
    entries: Entries,
    root: Root,
    known: Compared | None = None,
) -> Provenance:
    """The traces of all `entries` of a root, and the files of packages that it lacks."""
    files = {path for path, info in entries.items() if stat.S_ISREG(info.st_mode)}
    shipped = ((path, ship.checksum) for path, ship in records.shipped.items() if path in files)
    sums = {path: checksum for path, checksum in shipped if checksum}
    compared = compare_files(root, sums, known or Compared())
    traces = {
        path: trace(path, info, records, root, altered=path in compared.altered)
        for path, info in entries.items()
    }
    missing: dict[str, list[str]] = {}
    for path in records.shipped:
        if path not in traces:
            missing.setdefault(records.history.remover(path), []).append(path)
    removed = {step: tuple(sorted(paths)) for step, paths in missing.items()}
    return Provenance(traces, removed, records.installing, compared)


def compare_files(root: Root, sums: Mapping[str, Checksum], known: Compared) -> Compared:
    """Which files have the content that was recorded.  Raises OSError."""
    different = {path for path, checksum in sums.items() if known.altered.get(path) == checksum}
    unknown = [
        (path, checksum)
        for path, checksum in sums.items()
        if path not in different and known.intact.get(path) != checksum
    ]
    different |= find_altered(root, unknown)
    return Compared(
        {path: checksum for path, checksum in sums.items() if path not in different},
        {path: sums[path] for path in sums if path in different},
    )


def find_altered(root: Root, sums: Sequence[tuple[str, Checksum]]) -> set[str]:
    """The paths whose content differs from what the package recorded.  Raises OSError."""

    def check(part: Iterable[tuple[str, Checksum]]) -> list[str]:
        return [path for path, checksum in part if not checksum.is_of(Path(f"{root.path}{path}"))]

    many = os.cpu_count() or 1
    with ThreadPoolExecutor(many) as pool:
        parts = pool.map(check, (sums[first::many] for first in range(many)))
        return {path for part in parts for path in part}


def trace_path(path: str, records: Records, root: Root) -> Trace | None:
    """The trace of one path, None if it does not exist.  Raises OSError."""
    place = Path(f"{root.path}{path}")
    if not os.path.lexists(place):
        return None
    info = place.lstat()
    shipped = records.shipped.get(path)
    checksum = shipped.checksum if shipped and stat.S_ISREG(info.st_mode) else None
    altered = checksum is not None and not checksum.is_of(place)
    return trace(path, info, records, root, altered=altered)


def trace(path: str, info: os.stat_result, records: Records, root: Root, *, altered: bool) -> Trace:
    """The trace of one path, by the first rule that applies."""
    steps = records.history.steps(path)
    last = set(steps[-1].split(OR))
    shipped = records.shipped.get(path)
    package = records.packages.get(shipped.package, shipped.package) if shipped else ""
    # 1. It is what the last step that changed it places.
    placed = records.placed.get(path)
    if placed and f"{CONFIGURE}{placed.overlay}" in last and is_placed(placed, root, path, info):
        return Trace(path, TraceKind.OVERLAY, steps, package, placed.overlay)
    # 2. No package ships it.
    if not shipped:
        return Trace(path, TraceKind.STEP, steps)
    # 3. Its content differs from what the package recorded.
    if altered:
        return Trace(path, TraceKind.CHANGED, steps, package, change=CONTENT)
    # 4. Only the installation of packages changed it, as far as layers are known.
    if last <= records.installing or path not in records.history.touched:
        return Trace(path, TraceKind.PACKAGE, steps, package)
    # 5. A later step changed something that the checksum does not cover.
    change = CONTENT if stat.S_ISLNK(info.st_mode) else METADATA
    return Trace(path, TraceKind.CHANGED, steps, package, change=change)


def is_placed(placed: Placed, root: Root, path: str, info: os.stat_result) -> bool:
    host = Path(f"{root.path}{path}")
    if stat.S_ISLNK(info.st_mode):
        return os.fspath(host.readlink()) == placed.link
    is_root_owned = info.st_uid == info.st_gid == 0
    return (
        stat.S_ISREG(info.st_mode)
        and stat.S_IMODE(info.st_mode) == placed.mode
        and is_root_owned == (placed.owner == "root:root")
        and digest_of_file(host) == placed.digest
    )


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
