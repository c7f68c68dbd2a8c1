# SPDX-License-Identifier: Apache-2.0
"""The tree's own repository: what is published comes here first, and is checked out from here.

    refs/heads/image/PROFILE/VERSION    the image's files
    refs/heads/root/PROFILE/VERSION     its root

On one file system both the objects and the checkout are hard links to the builder's objects, so a
release costs names, not bytes; elsewhere they are copied once.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from imagebuilder.publish.find import ReleaseName, find_releases
from imagebuilder.store.locks import held
from imagebuilder.store.repository import IMAGES, Store, make_store
from imagebuilder.tree import Tree

ROOTS = "root"


def open_repo(tree: Tree) -> Store:
    """The tree's repository, made when it is not there."""
    with held(tree.lock("repo")):
        return make_store(tree.repo)


def can_link(source: Store, work: Path) -> bool:
    """Whether a file of `source` can have a second name in `work`: tried, not guessed."""
    probe = work / "probe"
    try:
        os.link(source.path / "config", probe)
    except OSError:
        return False
    probe.unlink()
    return True


def has_root_of(tree: Tree, profile: str) -> bool:
    """Whether there is a root that a new one of the profile can share files with."""
    return (tree.repo / "refs" / "heads" / ROOTS / profile).is_dir()


def bring(source: Store, tree: Tree, release: ReleaseName, image: str, root: str) -> None:
    """Pull what the tree's repository lacks of both commits and name them there."""
    repo = open_repo(tree)
    if source.path.resolve() != repo.path.resolve():
        repo.ostree("pull-local", source.path, image, root)
    for kind, commit in ((IMAGES, image), (ROOTS, root)):
        repo.bind(f"{kind}/{release.profile}/{release.version}", commit)


def check_out(source: Store, commit: str, target: Path) -> None:
    """Check `commit` out as hard links.

    Empty files are copied: they are all one object, and ext4 gives an inode 65,000 names.
    """
    source.ostree("checkout", "--require-hardlinks", "--force-copy-zerosized", commit, target)


def bring_root(
    source: Store, tree: Tree, release: ReleaseName, commits: tuple[str, str], target: Path
) -> None:
    """Have both commits (image's, root's) in the tree's repository and the root at `target`.

    Where files of `source` can be linked into the tree its root is checked out meanwhile: the
    objects are the same inodes in both repositories.
    """
    image, root = commits
    if not can_link(source, target.parent):
        bring(source, tree, release, image, root)
        check_out(Store(tree.repo), root, target)
        return
    with ThreadPoolExecutor(1) as pool:
        pulled = pool.submit(bring, source, tree, release, image, root)
        check_out(source, root, target)
        pulled.result()


def drop_unneeded(tree: Tree) -> str:
    """Remove refs without a release and the objects nothing needs; what ostree says it freed.

    The caller holds the tree's gc lock exclusively.
    """
    repo = Store(tree.repo)
    needed = {f"{release.profile}/{release.version}" for release in find_releases(tree)}
    for kind in (IMAGES, ROOTS):
        for name in repo.refs(kind):
            if name not in needed:
                repo.remove(f"{kind}/{name}")
    return repo.prune()
