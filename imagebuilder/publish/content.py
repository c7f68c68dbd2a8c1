# SPDX-License-Identifier: Apache-2.0
"""What a release's files must be: SHA256SUMS, and a quick way to see that nothing changed.

Reading a gigabyte for every promotion would take seconds.  So size, inode and change time of each
file are written down when its content was verified; only where they differ it is read again.  This
notices what happens to files, not a liar with root: nothing here is signed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from imagebuilder.decode import find_object
from imagebuilder.digest import digest_of_file
from imagebuilder.errors import Fault, ImagebuilderError, WorkError
from imagebuilder.files import make_folder, read_text, write_file
from imagebuilder.publish.anchors import SUMS, find_unbound, find_unlisted, read_commit_of
from imagebuilder.publish.verify import find_changes
from imagebuilder.rootkind import Format, name_of
from imagebuilder.tree import Tree

SQUASHFS = name_of(Format.SQUASHFS)
BOOTED = ("vmlinuz", "initrd.img", "boot.ipxe", *map(name_of, Format))
MOST = 20  # paths of one root that are named
Identity = list[int]


class DamagedError(WorkError):
    """A release is not what was published."""

    def __init__(self, faults: list[Fault]) -> None:
        ImagebuilderError.__init__(self, faults[0].what, where=faults[0].where, hint=faults[0].hint)
        self.faults = tuple(faults)


def render_sums(sums: Mapping[str, str]) -> str:
    """`sums` by file name as sha256sum(1) writes and checks them."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def read_sums(folder: Path) -> dict[str, str]:
    """The sha256 of every file of a release, as written when it was made.  Raises OSError."""
    lines = read_text(folder / SUMS).splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def release_digests(tree: Tree, profile: str, version: str) -> dict[str, str]:
    """What nodes boot of a release: sha256 of its files as written when it was made, by name.

    `root` is the OSTree commit of its root.  What a damaged release lacks is not in it.
    """
    try:
        sums = read_sums(tree.release(profile, version))
    except OSError:
        return {}
    return {name: sums[name] for name in BOOTED if name in sums} | (
        {"root": commit} if (commit := read_commit_of(tree, profile, version)) else {}
    )


def drop_from_memory(path: Path) -> None:
    """Let the next read of a file that is synced come from the disk (posix_fadvise(2))."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def check_staged(folder: Path, sums: Mapping[str, str]) -> None:
    """Read every file back from the disk and compare.  Raises WorkError."""
    for name, digest in sums.items():
        drop_from_memory(folder / name)
        if digest_of_file(folder / name) != digest:
            raise WorkError(
                "differs from the image after reading it back",
                where=os.fspath(folder / name),
                hint="imagebuilder fsck verifies the store; if it is whole, look at this disk and "
                "the memory (dmesg, smartctl)",
            )


def check_release(
    tree: Tree, profile: str, version: str, *, full: bool = False, root: bool = True
) -> None:
    """Raise DamagedError that names every file of a release that is not what was published.

    Files that look as they did when last verified are not read again unless `full`; every byte of
    the root is, unless not `root`.
    """
    faults = find_file_faults(tree, profile, version, full=full)
    if root:
        faults += find_root_faults(tree, profile, version)
    if faults:
        raise DamagedError(faults)


def find_file_faults(tree: Tree, profile: str, version: str, *, full: bool) -> list[Fault]:
    """What is wrong with the files of a release, its root excepted."""
    folder = tree.release(profile, version)
    try:
        sums = read_sums(folder)
    except OSError:
        sums = {}
    if not {"vmlinuz", "initrd.img", "manifest.json", "boot.ipxe"} <= sums.keys():
        return [damaged(folder / SUMS, "is missing or damaged", profile, version)]
    known = {} if full else read_identities(tree, profile, version)
    before = {name: identity for name in sums if (identity := identify(folder / name))}
    faults = [
        damaged(path, f"is not in {SUMS}: it was added, or its line was removed", profile, version)
        for path in find_unlisted(folder, sums)
    ]
    wrong = set()
    for name, digest in sums.items():
        if name in before and before[name] == known.get(name):
            continue
        if what := find_damage(folder / name, digest):
            wrong.add(name)
            faults.append(damaged(folder / name, what, profile, version))
    if "manifest.json" not in wrong:
        unbound = find_unbound(tree, profile, version, sums)
        faults += [damaged(path, what, profile, version) for path, what in unbound]
    if SQUASHFS in before and not is_shared(tree, profile, version):
        faults.append(unshared(tree, profile, version))
    if not faults and before != known:
        record_identities(tree, profile, version, before)
    return faults


def find_root_faults(tree: Tree, profile: str, version: str) -> Iterator[Fault]:
    """Every path of a root that is not as its commit has it; every byte is read."""
    root, commit = tree.root(profile, version), read_commit_of(tree, profile, version)
    hint = (
        f"imagebuilder publish {profile}@{version} restores it; until then imagebuilder rollback "
        f"{profile} if nodes boot it"
    )
    if not commit or not root.is_dir() or root.is_symlink():
        what = "is missing, or is not a folder" if commit else "has no commit in the repository"
        yield Fault(os.fspath(root), what, hint)
        return
    changes = find_changes(tree.repo, commit, root)
    for change in changes[:MOST]:
        yield Fault(os.fspath(root / change.path), str(change), hint)
    if len(changes) > MOST:
        what = f"has {len(changes) - MOST} more paths that differ from its commit"
        yield Fault(os.fspath(root), what, hint)


def is_shared(tree: Tree, profile: str, version: str) -> bool:
    """Whether nodes find root.squashfs of a release over NFS: that very file, not a copy of it."""
    try:
        shared = tree.shared_squashfs(profile, version)
        return shared.samefile(tree.release(profile, version) / SQUASHFS)
    except OSError:
        return False


def unshared(tree: Tree, profile: str, version: str) -> Fault:
    """What is wrong with a release whose root.squashfs is not found over NFS."""
    return Fault(
        os.fspath(tree.shared_squashfs(profile, version)),
        f"is not {SQUASHFS} of {profile}@{version} under a second name",
        f"imagebuilder publish {profile}@{version} makes it so; nodes with the root nfs-squashfs "
        "boot it",
    )


def damaged(path: Path, what: str, profile: str, version: str) -> Fault:
    """One file of a release that is not what was published."""
    return Fault(
        os.fspath(path),
        what,
        f"imagebuilder rollback {profile} if nodes boot it; then imagebuilder unpublish "
        f"{profile}@{version} and publish it again",
    )


def find_damage(path: Path, digest: str) -> str:
    """What is wrong with a file, or nothing."""
    try:
        return "" if digest_of_file(path) == digest else f"does not match its line in {SUMS}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def identify(path: Path) -> Identity | None:
    """What changes with a file: size, inode, times in ns; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def read_identities(tree: Tree, profile: str, version: str) -> dict[str, Identity]:
    """What was recorded; nothing when it is missing or damaged."""
    value = find_object(tree.verified(profile, version))
    return cast("dict[str, Identity]", value or {})


def record_verified(tree: Tree, profile: str, version: str) -> None:
    """Remember what the files of a release that was just verified look like."""
    folder = tree.release(profile, version)
    found = {name: identity for name in read_sums(folder) if (identity := identify(folder / name))}
    record_identities(tree, profile, version, found)


def record_identities(
    tree: Tree, profile: str, version: str, found: Mapping[str, Identity]
) -> None:
    """Remember what verified files look like; it only saves time, so a failure is none of ours."""
    path = tree.verified(profile, version)
    try:
        make_folder(path.parent)
        write_file(path, json.dumps(found).encode())
    except OSError:
        return
