# SPDX-License-Identifier: Apache-2.0
"""What a release or an image consists of, whatever its name: read from where it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from imagebuilder.drift.types import BootContent
from imagebuilder.errors import WorkError
from imagebuilder.publish.content import release_digests
from imagebuilder.publish.find import ReleaseName
from imagebuilder.publish.gate import load_manifest
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import Tree

SUM = "ContentChecksum:"


def release_content(tree: Tree, release: ReleaseName) -> BootContent | None:
    """What nodes boot of a release; None when it is not there, or damaged."""
    digests = release_digests(tree, release.profile, release.version)
    try:
        pair = digests["vmlinuz"], digests["initrd.img"]
        root = find_tree_sum(Store(tree.repo), digests["root"])
        return make_content(load_manifest(tree, release), pair, root)
    except (KeyError, TypeError, AttributeError, WorkError):
        return None


def image_content(store: Store, image: ImageRef) -> BootContent | None:
    """What nodes would boot of an image if it was published; None when it is damaged."""
    try:
        manifest: Mapping[str, Any] = store.manifest(image)
        kernel = manifest["kernel"]
        pair = kernel["vmlinuz"]["sha256"], kernel["initrd"]["sha256"]
        return make_content(manifest, pair, find_tree_sum(store, manifest["root"]["commit"]))
    except (ValueError, KeyError, TypeError, AttributeError, WorkError):
        return None


def make_content(manifest: Mapping[str, Any], pair: tuple[str, str], root: str) -> BootContent:
    """The content by its parts.  Raises KeyError and others for a manifest that is none."""
    packages = manifest.get("packages", ())
    return BootContent(
        vmlinuz=pair[0],
        initrd=pair[1],
        root=root,
        kind=str(manifest["boot"]["root"]),
        words=tuple(map(str, manifest["boot"]["cmdline"])),
        kernel=str(manifest["kernel"].get("release", "")),
        packages={f"{p['name']}:{p['architecture']}": str(p["version"]) for p in packages},
    )


@cache
def find_tree_sum(repo: Store, commit: str) -> str:
    """The checksum of a commit's tree: names, contents, modes, owners, attributes, no date.

    The same root that is built for another epoch has another commit and the same tree.  Empty when
    ostree does not tell.  Raises WorkError when there is no such commit.  A commit never changes,
    so each is looked at once.
    """
    lines = repo.ostree("show", commit).splitlines()
    return next((line.removeprefix(SUM).strip() for line in lines if line.startswith(SUM)), "")
