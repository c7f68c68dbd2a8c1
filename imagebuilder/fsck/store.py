# SPDX-License-Identifier: Apache-2.0
"""Verify the store: objects, layers and images; drop what only a build can restore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.fsck.objects import drop_objects, reachable
from imagebuilder.fsck.repository import Holder, check_repository, describe, left, take_all
from imagebuilder.fsck.types import Checked, Damage
from imagebuilder.image.types import Image, ImageLayer, read_image
from imagebuilder.store.kept_tree import drop_trees
from imagebuilder.store.records import find_record, record_file
from imagebuilder.store.repository import LAYERS, ImageRef, Store
from imagebuilder.store.verify import Name

SHOWN = 12  # characters of a digest


@dataclass(frozen=True)
class Examined:
    """An image in the store; `image` is None if its manifest cannot be read."""

    ref: ImageRef
    image: Image | None

    @property
    def label(self) -> str:
        return f"image {self.ref.name}"

    @property
    def layers(self) -> tuple[ImageLayer, ...]:
        """Its layers in order; empty if its manifest cannot be read."""
        return self.image.layers if self.image else ()


def check_store(store: Store, state: Path, *, repair: bool, donors: Sequence[Path]) -> Checked:
    """Verify every object, layer and image.  The caller holds the lock of gc.

    With `repair`, damaged objects are replaced from `donors`, other repositories; layers and images
    that remain damaged are dropped, with everything built on them.
    """
    refs, layers = store.images(), store.layers()
    commits = [*layers.values(), *(ref.commit for ref in refs)]
    objects = check_repository(store.path, commits)
    images = [examine(store, ref) for ref in refs]
    titles = {layer.digest: layer.title for image in images for layer in image.layers}
    damage = describe(store.path, objects.wrong, holders(images, layers, titles))
    if repair:
        drop_trees(state)  # it links the objects that are replaced
        damage = take_all(store.path, damage, donors)
    links, unknown = check_links(state, layers, images, titles)
    gone = check_layers(images, layers)
    found = [*damage.values(), *links.values(), *gone.values()]
    dropped: tuple[str, ...] = ()
    if repair and any(not each.repaired for each in found):
        wrong = left(damage)
        images = [examine(store, image.ref) for image in images]
        doomed = Doomed(store, state, layers, images, wrong)
        dropped = tuple(doomed.drop({*links, *gone}, titles))
        found = [each if each.repaired else each.fixed("dropped") for each in found]
    counts = {"images": len(refs), "layers": len(layers), "objects": objects.count}
    return Checked(counts, tuple(found), unknown, dropped)


def examine(store: Store, ref: ImageRef) -> Examined:
    try:
        return Examined(ref, read_image(store, ref))
    except ImagebuilderError:
        return Examined(ref, None)


def layer_label(digest: str, titles: Mapping[str, str]) -> str:
    title = titles.get(digest, "")
    return f"layer {title} ({digest[:SHOWN]})" if title else f"layer {digest[:SHOWN]}"


def holders(
    images: Sequence[Examined], layers: Mapping[str, str], titles: Mapping[str, str]
) -> list[Holder]:
    """Every commit of the store, with a name for messages."""
    found = [(layer_label(digest, titles), commit) for digest, commit in layers.items()]
    for image in images:
        found.append((image.label, image.ref.commit))
        if image.image:
            found.append((image.label, image.image.root.commit))
    return found


def check_links(
    state: Path, layers: Mapping[str, str], images: Sequence[Examined], titles: Mapping[str, str]
) -> tuple[dict[str, Damage], tuple[str, ...]]:
    """Layers that do not lead to their original commit, and layers whose commit is not recorded.

    It is in the layer's record, and in the manifest of each image whose root it is.
    """
    roots: dict[str, set[str]] = {}
    for image in images:
        if image.image and (root := image.image.root).layer in layers:
            roots.setdefault(root.layer, set()).add(root.commit)
    wrong: dict[str, Damage] = {}
    unknown: list[str] = []
    for digest, commit in layers.items():
        try:
            record = find_record(state, digest)
        except ImagebuilderError:
            record = None
        expected = {*roots.get(digest, ()), *([record.commit] if record and record.commit else [])}
        label = layer_label(digest, titles)
        if not expected:
            unknown.append(label)
        elif expected != {commit}:
            named = ", ".join(sorted(each[:SHOWN] for each in expected))
            how = f"leads to commit {commit[:SHOWN]}, but was made with {named}"
            used = tuple(
                i.label for i in images if any(layer.digest == digest for layer in i.layers)
            )
            wrong[digest] = Damage(label, how, f"{LAYERS}/{digest}", used)
    return wrong, tuple(unknown)


def check_layers(images: Sequence[Examined], layers: Mapping[str, str]) -> dict[str, Damage]:
    """Layers of images that the store does not have."""
    gone: dict[str, Damage] = {}
    for image in images:
        for layer in image.layers:
            if (digest := layer.digest) not in layers:
                label = f"layer {layer.title} ({digest[:SHOWN]})"
                gone[digest] = Damage(label, "is missing", f"{LAYERS}/{digest}", (image.label,))
    return gone


@dataclass(frozen=True)
class Doomed:
    """Drops the damaged layers and images of a store, and everything built on them."""

    store: Store
    state: Path
    layers: Mapping[str, str]
    images: Sequence[Examined]
    wrong: Mapping[Name, str]

    def drop(self, links: set[str], titles: Mapping[str, str]) -> Iterator[str]:
        """Drop them and the damaged objects; yields the name of each."""
        bad = {*self.wrong}
        spoilt = {digest for digest, commit in self.layers.items() if self._has(commit, bad)}
        wanted = [i for i in self.images if self._has(i.ref.commit, bad)]
        doomed, images = self._with_dependents({*spoilt, *links}, wanted)
        for digest in sorted(doomed & set(self.layers)):
            self.store.remove(f"{LAYERS}/{digest}")
            record_file(self.state, digest).unlink(missing_ok=True)
            yield layer_label(digest, titles)
        for image in images:
            self.store.remove(image.ref.ref)
            yield image.label
        drop_objects(self.store.path, self.wrong)
        self.store.prune()

    def _has(self, commit: str, bad: set[Name]) -> bool:
        return bool(bad) and not bad.isdisjoint(reachable(self.store.path, [commit]))

    def _with_dependents(
        self, doomed: set[str], images: list[Examined]
    ) -> tuple[set[str], list[Examined]]:
        """The same, with the layers above one of them in an image, and these images."""
        gone = list(images)
        while True:
            before = len(doomed), len(gone)
            for image in self.images:
                digests = [layer.digest for layer in image.layers]
                first = next((n for n, digest in enumerate(digests) if digest in doomed), None)
                if first is not None:
                    doomed |= set(digests[first:])
                    gone += [image] if image not in gone else []
            if before == (len(doomed), len(gone)):
                return doomed, gone
