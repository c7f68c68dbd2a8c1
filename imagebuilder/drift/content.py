# SPDX-License-Identifier: Apache-2.0
"""What a release or an image consists of, whatever its name: read from where it is kept."""

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
    """What nodes boot of a release; None when it is not there, or damaged."""
    digests = release_digests(tree, release)
    image = find_image(tree.release(release))
    if image is None or not (image.sums | {"root": image.root.commit}).items() <= digests.items():
        return None
    return find_content(Store(tree.repo), image)


def image_content(store: Store, ref: ImageRef) -> BootContent | None:
    """What nodes would boot of an image if it was published; None when it is damaged."""
    try:
        image = read_image(store, ref)
    except (InputError, WorkError):
        return None
    return find_content(store, image)


def find_content(repo: Store, image: Image) -> BootContent | None:
    """An image with the checksum of its root; None when `repo` does not have that."""
    try:
        return BootContent(image, find_tree_sum(repo, image.root.commit))
    except WorkError:
        return None


@cache
def find_tree_sum(repo: Store, commit: str) -> str:
    """The checksum of a commit's tree: names, contents, modes, owners, attributes, no date.

    The same root that is built for another epoch has another commit and the same tree.  Empty when
    ostree does not tell.  Raises WorkError when there is no such commit.  A commit never changes,
    so each is looked at once.
    """
    lines = repo.ostree("show", commit).splitlines()
    return next((line.removeprefix(SUM).strip() for line in lines if line.startswith(SUM)), "")
