# SPDX-License-Identifier: Apache-2.0
"""The content of a release or an image, independent of its name."""

from __future__ import annotations

from functools import cache

from imagebuilder.drift.types import BootContent
from imagebuilder.errors import InputError, WorkError
from imagebuilder.image.types import Image, find_image, read_image
from imagebuilder.publish.release.content import release_digests
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import ReleaseName, Tree

SUM = "ContentChecksum:"


def release_content(tree: Tree, release: ReleaseName) -> BootContent | None:
    """The content of a release; None if it is missing or damaged."""
    digests = release_digests(tree, release)
    image = find_image(tree.release(release))
    if image is None or not (image.sums | {"root": image.root.commit}).items() <= digests.items():
        return None
    return find_content(Store(tree.repo), image)


def image_content(store: Store, ref: ImageRef) -> BootContent | None:
    try:
        image = read_image(store, ref)
    except (InputError, WorkError):
        return None
    return find_content(store, image)


def find_content(repo: Store, image: Image) -> BootContent | None:
    """An image with the checksum of its root; None if `repo` does not have the root."""
    try:
        return BootContent(image, find_tree_sum(repo, image.root.commit))
    except WorkError:
        return None


@cache
def find_tree_sum(repo: Store, commit: str) -> str:
    """The checksum of a commit's tree: names, contents, modes, owners, attributes, no date.

    The same root built with another epoch has a different commit but the same tree.  Empty if
    ostree does not print it.  Raises WorkError if the commit does not exist.  A commit never
    changes, so each is read once.
    """
    lines = repo.ostree("show", commit).splitlines()
    return next((line.removeprefix(SUM).strip() for line in lines if line.startswith(SUM)), "")
