# SPDX-License-Identifier: Apache-2.0
"""Check the files of a release against SHA256SUMS, quickly if they have not changed.

Reading a gigabyte for every promotion would take seconds.  So the size, inode and change time of
each file are recorded when its content is verified; a file is read again only if they differ.  This
finds accidents, not an attacker with root: nothing here is signed.

SHA256SUMS alone proves little: a missing line excludes its file from every check.  So it must agree
with the folder, manifest.json, the journal and the ref of the root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from imagebuilder.bootfiles import BOOT_FILES, INITRD, KERNEL
from imagebuilder.decode import find_object, keep_object
from imagebuilder.digest import digest_of_file
from imagebuilder.errors import Fault, WorkError
from imagebuilder.files import read_text
from imagebuilder.image.types import find_image
from imagebuilder.publish.journal import PUBLISH, read_tail
from imagebuilder.publish.release.verify import find_changes
from imagebuilder.rootkind import Format, name_of
from imagebuilder.tree import ReleaseName, Tree

SUMS = "SHA256SUMS"
ROOTS = "root"  # refs of the tree's repository below which the roots' commits are
SQUASHFS = name_of(Format.SQUASHFS)
SCRIPT = "boot.ipxe"
MANIFEST = "manifest.json"
BOOTED = (*BOOT_FILES, SCRIPT, *map(name_of, Format))
# Of others, the manifest says whether a release has them.
REQUIRED = frozenset((KERNEL, INITRD, SCRIPT, MANIFEST))
MOST = 20  # paths of one root that an error names
Identity = list[int]


class DamagedError(WorkError):
    """A release differs from what was published."""


def render_sums(sums: Mapping[str, str]) -> str:
    """`sums` by file name as sha256sum(1) writes and checks them."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def read_sums(folder: Path) -> dict[str, str]:
    """The recorded sha256 of every file of a release.  Raises OSError."""
    lines = read_text(folder / SUMS).splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def release_digests(tree: Tree, release: ReleaseName) -> dict[str, str]:
    """The recorded sha256 of what nodes boot of a release, by file name.

    `root` is the OSTree commit of its root.  Leaves out what a damaged release lacks.
    """
    try:
        sums = read_sums(tree.release(release))
    except OSError:
        return {}
    return {name: sums[name] for name in BOOTED if name in sums} | (
        {"root": commit} if (commit := read_commit_of(tree, release)) else {}
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
                "differs from the image when read back",
                where=os.fspath(folder / name),
                hint="run imagebuilder fsck; if the store is intact, check this disk and the "
                "memory (dmesg, smartctl)",
            )


def check_release(
    tree: Tree, release: ReleaseName, *, full: bool = False, root: bool = True
) -> None:
    """Raise DamagedError that names every file of a release that differs from what was published.

    Files that are unchanged since they were verified are read again only if `full`.  Every byte of
    the root is read if `root`.
    """
    faults = find_file_faults(tree, release, full=full)
    if root:
        faults += find_root_faults(tree, release)
    if faults:
        raise DamagedError.of(faults)


def find_file_faults(tree: Tree, release: ReleaseName, *, full: bool) -> list[Fault]:
    """What is wrong with the files of a release, except its root."""
    folder = tree.release(release)
    try:
        sums = read_sums(folder)
    except OSError:
        sums = {}
    if not sums.keys() >= REQUIRED:
        return [damaged(folder / SUMS, "is missing or damaged", release)]
    known = {} if full else read_identities(tree, release)
    most = most_bytes(tree, release)
    before = {name: identity for name in sums if (identity := identify(folder / name))}
    faults = [
        damaged(path, f"is not in {SUMS}: it was added, or its line was removed", release)
        for path in find_unlisted(folder, sums)
    ]
    wrong = set()
    for name, digest in sums.items():
        if name in before and before[name] == known.get(name):
            continue
        if what := find_damage(folder / name, digest, most):
            wrong.add(name)
            faults.append(damaged(folder / name, what, release))
    if MANIFEST not in wrong:
        unbound = find_unbound(tree, release, sums)
        faults += [damaged(path, what, release) for path, what in unbound]
    if SQUASHFS in before and not is_shared(tree, release):
        faults.append(unshared(tree, release))
    if not faults and before != known:
        keep_object(tree.verified(release), before)
    return faults


def find_root_faults(tree: Tree, release: ReleaseName) -> Iterator[Fault]:
    """Every path of a root that differs from its commit.  Reads every byte."""
    root, commit = tree.root(release), read_commit_of(tree, release)
    hint = (
        f"run imagebuilder publish {release} to restore it; if nodes boot it, first run "
        f"imagebuilder rollback {release.profile}"
    )
    if not commit or not root.is_dir() or root.is_symlink():
        what = "is missing, or is not a folder" if commit else "has no commit in the repository"
        yield Fault(os.fspath(root), what, hint)
        return
    changes = find_changes(tree.repo, commit, root, most_bytes(tree, release))
    for change in changes[:MOST]:
        yield Fault(os.fspath(root / change.path), str(change), hint)
    if len(changes) > MOST:
        what = f"has {len(changes) - MOST} more paths that differ from its commit"
        yield Fault(os.fspath(root), what, hint)


def most_bytes(tree: Tree, release: ReleaseName) -> int | None:
    """More bytes than the root of a release can have, packed or not; None if nobody knows."""
    image = find_image(tree.release(release))
    return image.root.most_bytes if image else None


def is_shared(tree: Tree, release: ReleaseName) -> bool:
    """Whether the file that nodes find over NFS is root.squashfs of the release, not a copy."""
    try:
        shared = tree.shared_squashfs(release)
        return shared.samefile(tree.release(release) / SQUASHFS)
    except OSError:
        return False


def unshared(tree: Tree, release: ReleaseName) -> Fault:
    """What is wrong with a release whose root.squashfs is not found over NFS."""
    return Fault(
        os.fspath(tree.shared_squashfs(release)),
        f"is not {SQUASHFS} of {release} under a second name",
        f"run imagebuilder publish {release} to restore it for nodes with the root nfs-squashfs",
    )


def damaged(path: Path, what: str, release: ReleaseName) -> Fault:
    """One file of a release that is not what was published."""
    return Fault(
        os.fspath(path),
        what,
        f"if nodes boot it, run imagebuilder rollback {release.profile}; then run imagebuilder "
        f"unpublish {release} and publish it again",
    )


def find_damage(path: Path, digest: str, most: int | None) -> str:
    """What is wrong with a file, or nothing; one of more than `most` bytes is not read."""
    try:
        if most is not None and path.stat().st_size > most:
            return f"is larger than the whole root: it does not match its line in {SUMS}"
        return "" if digest_of_file(path) == digest else f"does not match its line in {SUMS}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def identify(path: Path) -> Identity | None:
    """What changes with a file: size, inode, times in ns; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def read_identities(tree: Tree, release: ReleaseName) -> dict[str, Identity]:
    """What was recorded; empty if the record is missing or damaged."""
    value = find_object(tree.verified(release))
    return cast("dict[str, Identity]", value or {})


def record_verified(tree: Tree, release: ReleaseName) -> None:
    """Record the identities of the files of a release that was just verified."""
    folder = tree.release(release)
    found = {name: identity for name in read_sums(folder) if (identity := identify(folder / name))}
    keep_object(tree.verified(release), found)


def find_unlisted(folder: Path, sums: Mapping[str, str]) -> Iterator[Path]:
    """The files in the folder of a release that its SHA256SUMS does not list."""
    for path in sorted(folder.iterdir()):
        if path.name not in sums and path.name != SUMS:
            yield path


def find_unbound(
    tree: Tree, release: ReleaseName, sums: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    """What contradicts `sums`, and where; the caller has checked manifest.json against its sum."""
    folder = tree.release(release)
    image = find_image(folder)
    if image is None:
        yield folder / MANIFEST, "is not the manifest of an image"
        return
    for name, recorded in image.sums.items():
        if sums.get(name) != recorded:
            yield folder / SUMS, f"has {sums.get(name)} for {name}, manifest.json has {recorded}"
    written = {
        event.sums
        for event in read_tail(tree.journal)
        if event.event == PUBLISH and event.release == release
    } - {""}
    if written and digest_of_file(folder / SUMS) not in written:
        yield folder / SUMS, "is not what imagebuilder publish wrote"
    commit = read_commit_of(tree, release)
    if commit != image.root.commit:
        what = f"has commit {commit or 'nothing'}, manifest.json has {image.root.commit}"
        yield ref_of(tree, release), what


def ref_of(tree: Tree, release: ReleaseName) -> Path:
    """The file that names the commit of a root."""
    return tree.repo / "refs/heads" / ROOTS / release.profile / release.version


def read_commit_of(tree: Tree, release: ReleaseName) -> str:
    """The commit of a release's root; empty when it cannot be read."""
    try:
        return read_text(ref_of(tree, release)).strip()
    except OSError:
        return ""
