# SPDX-License-Identifier: Apache-2.0
"""Versions of one lock differ in a digest alone: what is newest is told by time."""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.inventory import old_images
from imagebuilder.nodes.references import find_versions
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.removal import beyond
from imagebuilder.store.repository import Store
from imagebuilder.tree import ReleaseName, Tree

# In the order in which they came; by name it is the other way round.
VERSIONS = ("20260101000000-ffffffff", "20260101000000-88888888", "20260101000000-00000000")


def dated(path: Path, time: int) -> Path:
    """Give what is at `path` a time."""
    os.utime(path, (time, time))
    return path


def test_images_are_kept_in_the_order_in_which_they_were_built(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    refs = store.path / "refs/heads/image/p"
    refs.mkdir(parents=True)
    for time, version in enumerate(VERSIONS):
        (refs / version).write_text("c" * 64)
        dated(refs / version, 1_000 + time)
    assert [image.version for image in store.images()] == list(VERSIONS)
    assert store.image("p").version == VERSIONS[-1]
    assert [image.version for image in old_images(store, 1)] == list(VERSIONS[:2])


def test_releases_are_kept_in_the_order_in_which_they_were_published(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for time, version in enumerate(VERSIONS):
        tree.release(ReleaseName("p", version)).mkdir(parents=True)
        dated(tree.release(ReleaseName("p", version)), 1_000 + time)
    there = find_releases(tree)
    assert [release.version for release in there] == list(VERSIONS)
    assert find_versions(tree, "p") == VERSIONS
    assert [release.version for release in beyond(there, 1)] == list(VERSIONS[:2])
    assert tree.published(ReleaseName("p", "gone")) == 0
