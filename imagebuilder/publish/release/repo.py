# SPDX-License-Identifier: Apache-2.0
"""The tree's own repository: releases are pulled into it and checked out from it.

    refs/heads/image/PROFILE/VERSION    the image's files
    refs/heads/root/PROFILE/VERSION     its root

Each object is copied from the builder's store once: a release takes only the space of what is new
in it.  On btrfs and XFS the copies share their blocks with the store until one of them changes.
The checkout is hard links into this repository.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from imagebuilder.errors import FullError, WorkError
from imagebuilder.files import sync_filesystem
from imagebuilder.folders import entries_below, matching
from imagebuilder.process import run
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.release.content import ROOTS
from imagebuilder.publish.space import HINT
from imagebuilder.store.extent import Extent, measure
from imagebuilder.store.objects import find_file, list_objects, object_path
from imagebuilder.store.plain import DIRMETA
from imagebuilder.store.repository import IMAGES, Store, make_store
from imagebuilder.store.verify import Name, find_damaged, name_of
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import format_size
from imagebuilder.untrusted import fit

AT_ONCE = 1000  # names of objects on one command line
MOST_SHOWN = 5  # damaged objects
MOST_PATHS = 10_000_000  # of a commit: whoever verifies a root reads each of them
ELSEWHERE = "--tree names another place"


@dataclass(frozen=True)
class Commits:
    """An image's commit and that of its root."""

    image: str
    root: str


def open_repo(tree: Tree) -> Store:
    """The tree's repository; makes it if it does not exist."""
    return make_store(tree.repo, ELSEWHERE)


def has_root_of(tree: Tree, profile: str) -> bool:
    """Whether the profile has a root that a new one can share files with."""
    return (tree.repo / "refs" / "heads" / ROOTS / profile).is_dir()


def bring(source: Store, tree: Tree, release: ReleaseName, commits: Commits, work: Path) -> None:
    """Copy what the tree's repository lacks of both commits, and write their refs.

    Verifies every copied object.  Raises WorkError if `source` is damaged.
    """
    repo = open_repo(tree)
    if source.path.resolve() != repo.path.resolve():
        scratch = make_scratch(repo, work / "brought")
        new = find_new(source, repo, commits)
        try:
            # Those that were copied are verified while the next are copied.
            verify_objects(scratch, copy_objects(source, new, scratch))
            move_objects(scratch, repo, commits)
        except WorkError as error:
            raise WorkError(
                f"could not publish {release}: its source repository is damaged\n"
                f"{error.faults[0].what}",
                where=os.fspath(source.path),
                hint="run imagebuilder fsck to see what is damaged, and build the image again",
            ) from error
    check_shared(source, repo, release, commits)
    for kind, commit in ((IMAGES, commits.image), (ROOTS, commits.root)):
        repo.bind(f"{kind}/{release.profile}/{release.version}", commit)


def check_shared(source: Store, repo: Store, release: ReleaseName, commits: Commits) -> None:
    """Raise WorkError if an object that an earlier release brought is plainly damaged.

    Folders and their rights are verified, because files would be missing.  Files that are shared
    are not read again: only their size is compared, where `source` has them too.  The boot test and
    promote read every byte.
    """
    try:
        named = list_objects(repo.path, commits.image) | list_objects(repo.path, commits.root)
        verify_objects(repo, (name_of(name) for name in named if name.endswith(f".{DIRMETA}")))
        if source.path.resolve() != repo.path.resolve():
            check_same_sizes(source, repo, named, commits.root)
    except WorkError as error:
        raise WorkError(
            f"could not publish {release}: the repository of the tree is damaged\n"
            f"{error.faults[0].what}",
            where=os.fspath(repo.path),
            hint="run imagebuilder fsck --tree --repair",
        ) from error


def check_same_sizes(source: Store, repo: Store, names: Iterable[str], root: str) -> None:
    """Raise WorkError if one of these objects, paths below objects/, is not as large in both.

    The error names a file of the commit `root` by its path there.
    """
    for name in sorted(names):
        if size_of(source, name) != (size := size_of(repo, name)):
            file = find_file(source.path, root, name) or name
            here = f"{fit(file)} has {format_size(size)} in the repository of the tree"
            raise WorkError(f"{here}, and {format_size(size_of(source, name))} in {source.path}")


def size_of(repo: Store, name: str) -> int:
    """The size of an object, a path below objects/.  Raises WorkError."""
    try:
        return os.lstat(f"{repo.path}/objects/{name}").st_size
    except OSError as error:
        raise WorkError(f"{name} cannot be read: {error.strerror}") from error


def make_scratch(repo: Store, path: Path) -> Store:
    """A temporary repository for objects that `repo` will take."""
    scratch = make_store(path, ELSEWHERE)
    # ostree looks there for objects that this one lacks (ostree.repo-config(5)).
    scratch.ostree("config", "set", "core.parent", os.fspath(repo.path))
    return scratch


def find_new(source: Store, repo: Store, commits: Commits) -> list[str]:
    """The objects of both commits that `repo` lacks, as paths below objects/."""
    needed = list_objects(source.path, commits.image) | list_objects(source.path, commits.root)
    there = repo.path / "objects"
    return sorted(name for name in needed if not os.path.lexists(f"{there}/{name}"))


def copy_objects(source: Store, names: Sequence[str], scratch: Store) -> Iterator[Name]:
    """Copy objects into `scratch`, and give their names; blocks are shared where possible.

    They are copies, not hard links: a write to a published file must not change the store.
    The disk writes them while the next are copied, instead of all at the end, when ostree syncs.
    """
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(sync_filesystem, scratch.path)
        for start in range(0, len(names), AT_ONCE):
            batch = names[start : start + AT_ONCE]
            run(
                ["cp", "--archive", "--reflink=auto", "--parents",
                 f"--target-directory={scratch.path / 'objects'}", "--",
                 *batch],
                cwd=source.path / "objects",
            )  # fmt: skip
            if written.done():
                written.result()  # the kernel tells of a failed write only once
                written = writer.submit(sync_filesystem, scratch.path)
            yield from map(name_of, batch)
        written.result()


def verify_objects(scratch: Store, names: Iterable[Name]) -> None:
    """Raise WorkError if one of these objects is not what its name says."""
    if damaged := find_damaged(scratch.path, names):
        shown = [f"{object_path(*name)} {how}" for name, how in islice(damaged.items(), MOST_SHOWN)]
        more = len(damaged) - len(shown)
        raise WorkError("\n".join([*shown, f"and {more} more"] if more else shown))


def move_objects(scratch: Store, repo: Store, commits: Commits) -> None:
    """Give `repo` the verified objects of both commits.  Raises WorkError if one is missing.

    They become hard links, or copies if the repository is a mount point.  ostree's own --untrusted
    would verify them too, but copies every byte once more and never shares blocks.
    """
    repo.ostree("pull-local", scratch.path.absolute(), commits.image, commits.root)


def check_out(source: Store, commit: str, target: Path) -> None:
    """Check `commit` out as hard links.

    Empty files are copied: they are all one object, and ext4 allows 65,000 links to an inode.
    Raises FullError before the disk is full, and WorkError for more paths than any root has.
    """
    check_extent(measure(source.path, commit), commit, target.parent)
    source.ostree("checkout", "--require-hardlinks", "--force-copy-zerosized", commit, target)


def check_extent(extent: Extent, commit: str, place: Path) -> None:
    """Raise FullError or WorkError unless this commit can be checked out in the folder `place`."""
    if extent.paths > MOST_PATHS:
        raise WorkError(
            f"commit {commit[:12]} has more than {MOST_PATHS} files and folders",
            hint="build the image again; nothing was published",
        )
    disk = os.statvfs(place)
    few = disk.f_files and extent.paths > disk.f_favail
    if few or extent.size > disk.f_bavail * disk.f_frsize:
        raise FullError(
            f"no space left for the {extent.paths} files and folders of commit {commit[:12]}",
            where=os.fspath(place),
            hint=HINT,
        )


def bring_root(
    source: Store, tree: Tree, release: ReleaseName, commits: Commits, work: Path, most: int
) -> None:
    """Pull both commits into the tree's repository and check the root out at `work`/root.

    Raises WorkError if its files have more than `most` bytes, or more than the disk: some object
    was in the tree already and is damaged, or nobody could read them all.
    """
    bring(source, tree, release, commits, work)
    check_out(Store(tree.repo), commits.root, work / "root")
    check_sizes(work / "root", release, most)


def check_sizes(root: Path, release: ReleaseName, most: int) -> None:
    """Raise WorkError if the files of a root have more than `most` bytes, or than the disk."""
    most = min(most, shutil.disk_usage(root).total)
    total, largest = 0, (0, "")
    for entry in entries_below(root):
        if entry.is_file(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            total, largest = total + size, max(largest, (size, entry.path))
    if total > most:
        path = fit(os.path.relpath(largest[1], root))
        raise WorkError(
            f"could not publish {release}: {path} has {format_size(largest[0])} in the repository "
            f"of the tree, and its whole root at most {format_size(most)}",
            hint="run imagebuilder fsck --tree --repair",
        )


def drop_unneeded(tree: Tree) -> str:
    """Remove refs without a release and unneeded objects; returns what ostree says it freed.

    The caller holds the tree's gc lock exclusively.
    """
    repo = Store(tree.repo)
    needed = {f"{release.profile}/{release.version}" for release in find_releases(tree)}
    for kind in (IMAGES, ROOTS):
        for name in repo.refs(kind):
            if name not in needed:
                repo.remove(f"{kind}/{name}")
    # What ostree notes of a pull that was cut short; no ref leads to such a commit.
    for left in matching(repo.path / "state", "*.commitpartial"):
        left.unlink(missing_ok=True)
    return repo.prune()
