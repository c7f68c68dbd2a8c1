# SPDX-License-Identifier: Apache-2.0
"""Versions of one lock differ in a digest alone: what is newest is told by time."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imagebuilder.folders import date_last
from imagebuilder.inventory import old_images
from imagebuilder.nodes.references import find_versions
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.removal import beyond
from imagebuilder.store.repository import Store
from imagebuilder.tree import ReleaseName, Tree
from tests.unit.drift.world import make_world

AHEAD = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp())
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


def test_what_was_made_while_the_clock_was_ahead_does_not_stay_the_newest(tmp_path: Path) -> None:
    made = [tmp_path / name for name in "abcde"]
    for path, time in zip(made, (1_000, AHEAD, AHEAD + 9, AHEAD + 9, 2_000), strict=True):
        path.touch()
        dated(path, time)
    gone = tmp_path / "gone"
    date_last(made[4], [*made, gone])
    assert made[4].stat().st_mtime == 2_000
    assert [path.name for path in sorted(made, key=lambda path: path.stat().st_mtime)] == [*"abcde"]
    assert made[0].stat().st_mtime == 1_000
    assert not gone.exists()


@pytest.mark.root
def test_the_image_and_the_release_made_last_are_the_newest(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    for version in VERSIONS:
        image = world.build(version=version)
        world.publish(image)
        assert world.store.image("demo").version == version
        assert find_versions(world.tree, "demo")[-1] == version
        # The clock was ahead while it was made.
        dated(world.store.path / "refs/heads" / image.ref, AHEAD)
        dated(world.tree.release(image.release), AHEAD)
    assert [each.version for each in world.store.images()] == list(VERSIONS)
    assert find_versions(world.tree, "demo") == VERSIONS
