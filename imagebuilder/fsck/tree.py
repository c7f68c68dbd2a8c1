# SPDX-License-Identifier: Apache-2.0
"""Verify the netboot tree: its repository, the files and roots of releases, the channels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.files import keep_file
from imagebuilder.fsck.repository import check_repository, describe, left, take_all
from imagebuilder.fsck.types import Checked, Damage
from imagebuilder.nodes.references import find_channel_faults
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.release.content import ROOTS, find_file_faults, most_bytes, read_sums
from imagebuilder.publish.release.roots import restore_tree
from imagebuilder.publish.release.verify import find_changes
from imagebuilder.store.repository import IMAGES, Store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import ReleaseName, Tree

REPAIR = "run imagebuilder fsck --tree --repair"


def check_tree(tree: Tree, *, repair: bool, donors: Sequence[Path]) -> Checked:
    """Verify everything published.  The caller holds the tree's lock of gc.

    With `repair`, objects are replaced from `donors`, other repositories, then roots and files from
    the tree's own.
    """
    repo = Store(tree.repo)
    refs = {kind: repo.refs(kind) for kind in (IMAGES, ROOTS)}
    labelled = [
        (f"release {name.replace('/', '@')}", commit)
        for kind in refs
        for name, commit in refs[kind].items()
    ]
    sizes = [most_bytes(tree, release) for release in find_releases(tree)]
    known = [size for size in sizes if size is not None]
    most = sum(known) if len(known) == len(sizes) else None
    objects = check_repository(repo.path, [commit for _, commit in labelled], most)
    damage = describe(repo.path, objects.wrong, labelled, REPAIR)
    if repair:
        damage = take_all(repo.path, damage, donors)
    repairable = repair and not left(damage)
    found = list(damage.values())
    releases = find_releases(tree)
    for release in releases:
        found += check_root(tree, release, repair=repairable)
        found += check_files(tree, release, repair=repairable)
    found += check_channels(tree)
    counts = {"releases": len(releases), "tree-objects": objects.count}
    return Checked(counts, tuple(found))


def check_root(tree: Tree, release: ReleaseName, *, repair: bool) -> Iterator[Damage]:
    """Differences of a root from its commit."""
    name, root = f"{release.profile}/{release.version}", tree.root(release)
    commit = Store(tree.repo).refs(ROOTS).get(name)
    what = f"release {release}"
    if commit is None:
        hint = f"run imagebuilder unpublish {release}, then publish it again"
        yield Damage(what, "has no commit of its root", f"{tree.repo}: {ROOTS}/{name}", hint=hint)
        return
    most = most_bytes(tree, release)
    changes = find_changes(tree.repo, commit, root, most)
    if not changes:
        return
    if repair:
        with workplace(tree.path, new_id(f"repair-{release.profile}")) as work:
            restore_tree(Store(tree.repo), tree, commit, root, work, most)
    after = find_changes(tree.repo, commit, root, most) if repair else []
    still = {change.path for change in after}
    for change in changes:
        path = "/" if change.path == "." else f"/{change.path}"
        place = os.fspath(root / change.path)
        damage = Damage(f"{what}: {path}", str(change), place, hint=REPAIR)
        restored = repair and change.path not in still
        yield damage.fixed("restored from the tree's repository") if restored else damage


def check_files(tree: Tree, release: ReleaseName, *, repair: bool) -> Iterator[Damage]:
    """Files of a release that are not as published."""
    faults = find_file_faults(tree, release, full=True)
    done = restore_files(tree, release, {Path(f.where) for f in faults}) if repair else set()
    for fault in faults:
        damage = Damage(f"release {release}", fault.what, fault.where, hint=fault.hint)
        restored = Path(fault.where) in done
        yield damage.fixed("restored from the tree's repository") if restored else damage


def restore_files(tree: Tree, release: ReleaseName, wrong: set[Path]) -> set[Path]:
    """Restore files from the image; returns the restored ones."""
    folder = tree.release(release)
    commit = Store(tree.repo).refs(IMAGES).get(f"{release.profile}/{release.version}")
    done: set[Path] = set()
    try:
        sums = read_sums(folder)
    except OSError:
        return done
    wanted = {path for path in wrong if path.parent == folder and path.name in sums}
    if commit is None or not wanted:
        return done
    with workplace(tree.path, new_id(f"repair-{release.profile}")) as work:
        Store(tree.repo).checkout(commit, work / "image", links=False)
        for path in sorted(wanted):
            fresh = work / "image" / path.name
            if fresh.is_file() and digest_of_file(fresh) == sums[path.name]:
                fresh.chmod(0o644)
                keep_file(fresh, path)
                done.add(path)
    return done


def check_channels(tree: Tree) -> Iterator[Damage]:
    """Channels that do not lead to a release of their profile."""
    for fault in find_channel_faults(tree):
        name = "/".join(Path(fault.where).parts[-2:])
        yield Damage(f"channel {name}", fault.what, fault.where, hint=fault.hint)
