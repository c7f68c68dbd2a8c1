# SPDX-License-Identifier: Apache-2.0
"""What `diff` compares: an image of the store or a release of the tree, by what a person typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.image.changes import FileDiff, diff_files
from imagebuilder.image.diff import ImageDiff
from imagebuilder.image.files import read_root
from imagebuilder.nodes.references import find_version
from imagebuilder.publish.content import release_digests
from imagebuilder.publish.find import ReleaseName, find_release, find_releases
from imagebuilder.publish.gate import load_manifest
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import CHANNELS, Tree


@dataclass(frozen=True)
class Side:
    """One of the two: its manifest, and the repository that has its `root`, a commit."""

    manifest: Mapping[str, Json]
    repo: Store
    root: str


def find_side(name: str, settings: Settings, path: Path) -> Side:
    """What `name` is: PROFILE/CHANNEL is a release of the tree at `path`; PROFILE is the newest
    image of the store, or what nodes get where the store has none; PROFILE@VERSION is an image,
    or a release.

    Raises InputError when there is neither, or a release is damaged.
    """
    store, tree = Store(settings.state / "store"), Tree(path.absolute())
    profile, slash, channel = name.partition("/")
    if slash:
        return release_side(tree, of_channel(tree, profile, channel, name))
    profile, _, version = name.partition("@")
    try:
        image = store.image(name)
    except InputError:
        if not find_releases(tree, profile):
            raise
    else:
        manifest = store.manifest(image)
        root = manifest["root"]
        assert isinstance(root, Mapping)
        return Side(manifest, store, str(root["commit"]))
    if version:
        return release_side(tree, find_release(tree, name))
    found = (find_version(tree, profile, each) for each in reversed(CHANNELS))
    newest = find_releases(tree, profile)[-1].version
    return release_side(tree, ReleaseName(profile, next(filter(None, found), newest)))


def of_channel(tree: Tree, profile: str, channel: str, name: str) -> ReleaseName:
    """The release a channel points to.  Raises InputError."""
    version = find_version(tree, profile, channel) if channel in CHANNELS else ""
    if not version:
        there = [f"{profile}/{each}" for each in CHANNELS if find_version(tree, profile, each)]
        raise InputError(
            f"no such channel in {tree.path}",
            where=name,
            hint=f"there is: {', '.join(there)}" if there else "--tree names another tree",
        )
    return ReleaseName(profile, version)


def release_side(tree: Tree, release: ReleaseName) -> Side:
    """A release as a side.  Raises InputError when it is damaged."""
    manifest = load_manifest(tree, release)
    root = release_digests(tree, release.profile, release.version).get("root")
    if not manifest or not root:
        raise InputError(
            "is not whole",
            where=str(release),
            hint="imagebuilder releases --verify says what is wrong with it",
        )
    return Side(manifest, Store(tree.repo), root)


def compare_files(old: Side, new: Side, found: ImageDiff, glob: str) -> FileDiff:
    """The files that differ; those of packages that `found` has are told in a line."""
    names = (name for name, _, _ in found.packages)
    roots = read_root(old.repo, old.root), read_root(new.repo, new.root)
    return diff_files(*roots, names, glob=glob)
