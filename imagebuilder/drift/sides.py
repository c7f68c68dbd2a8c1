# SPDX-License-Identifier: Apache-2.0
"""The sides of `diff`: an image in the store or a release in the tree, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.families.registry import family_of_distribution
from imagebuilder.image.changes import FileDiff, diff_files
from imagebuilder.image.diff import ImageDiff
from imagebuilder.image.files import CommittedRoot, read_root
from imagebuilder.image.types import Image, find_image, read_image
from imagebuilder.nodes.references import find_version
from imagebuilder.publish.find import find_release, find_releases
from imagebuilder.publish.release.content import read_commit_of
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import CHANNELS, ReleaseName, Tree


@dataclass(frozen=True)
class Side:
    image: Image
    repo: Store


def find_side(name: str, settings: Settings, path: Path) -> Side:
    """The side called `name`: PROFILE/CHANNEL is a release in the tree at `path`; PROFILE is the
    newest image in the store, or what nodes get if the store has none; PROFILE@VERSION is an image
    or a release.

    Raises InputError if neither exists, or a release is damaged.
    """
    store, tree = Store(settings.state / "store"), Tree(path.absolute())
    profile, slash, channel = name.partition("/")
    if slash:
        return release_side(tree, of_channel(tree, profile, channel, name))
    profile, _, version = name.partition("@")
    try:
        ref = store.image(name)
    except InputError:
        if not find_releases(tree, profile):
            raise
    else:
        return Side(read_image(store, ref), store)
    if version:
        return release_side(tree, find_release(tree, name))
    found = (find_version(tree, profile, each) for each in reversed(CHANNELS))
    newest = find_releases(tree, profile)[-1].version
    return release_side(tree, ReleaseName(profile, next(filter(None, found), newest)))


def of_channel(tree: Tree, profile: str, channel: str, name: str) -> ReleaseName:
    """The release that a channel points to.  Raises InputError."""
    version = find_version(tree, profile, channel) if channel in CHANNELS else ""
    if not version:
        known = [f"{profile}/{each}" for each in CHANNELS if find_version(tree, profile, each)]
        raise InputError(
            f"{tree.path} has no channel of this name",
            where=name,
            hint=f"known: {', '.join(known)}" if known else "choose another tree with --tree",
        )
    return ReleaseName(profile, version)


def release_side(tree: Tree, release: ReleaseName) -> Side:
    """A release as a side.  Raises InputError if it is damaged."""
    image = find_image(tree.release(release))
    if image is None or image.root.commit != read_commit_of(tree, release):
        raise InputError(
            "is damaged",
            where=str(release),
            hint="run imagebuilder releases --verify to see what is wrong with it",
        )
    return Side(image, Store(tree.repo))


def compare_files(old: Side, new: Side, found: ImageDiff, glob: str) -> FileDiff:
    """The files that differ; those of packages in `found` are summarised."""
    names = (name for name, _, _ in found.packages)
    before, after = map(read_side, (old, new))
    return diff_files(before, after, names, glob=glob)


def read_side(side: Side) -> CommittedRoot:
    """The root of a side.  Raises InputError if no family supports it, WorkError."""
    family = family_of_distribution(side.image.distribution)
    return read_root(side.repo, side.image.root.commit, family)
