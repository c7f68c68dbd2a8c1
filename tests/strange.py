# SPDX-License-Identifier: Apache-2.0
"""What of a root is not what its commit holds."""

from __future__ import annotations

import filecmp
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from imagebuilder.image.files import CommittedRoot, File
from imagebuilder.proof.reading.provenance import walk_root
from imagebuilder.root import Root

ADDED, CHANGED, REMOVED = "added", "changed", "removed"
TYPES = {"-": stat.S_IFREG, "d": stat.S_IFDIR, "l": stat.S_IFLNK}


def find_strange(committed: CommittedRoot, root: Root) -> dict[str, str]:
    """The paths that were added, changed or removed since `committed`, and which of them.

    A file that is a hard link of the repository's object is not read.
    """
    there = dict(walk_root(root))
    found = {path: REMOVED for path in committed.files if path not in there and path != "/"}
    for path, info in there.items():
        file = committed.files.get(path)
        if file is None:
            found[path] = ADDED
        elif not is_same(file, info, root, path, committed):
            found[path] = CHANGED
    return found


def is_same(
    file: File, info: os.stat_result, root: Root, path: str, committed: CommittedRoot
) -> bool:
    host = Path(f"{root.path}{path}")
    if TYPES.get(file.kind) != stat.S_IFMT(info.st_mode):
        return False
    if file.kind == "l":
        return os.fspath(host.readlink()) == file.target
    mode, owner = f"{stat.S_IMODE(info.st_mode):04o}", f"{info.st_uid}:{info.st_gid}"
    if (file.mode, file.owner) != (mode, owner):
        return False
    if file.kind == "d":
        return True
    kept = committed.place(file)
    if os.path.samestat(info, kept.lstat()):
        return True
    same = file.size == info.st_size and filecmp.cmp(host, kept, shallow=False)
    return same and dict(attributes(host)) == dict(attributes(kept))


def attributes(path: Path) -> Iterator[tuple[str, bytes]]:
    """The extended attributes of a file."""
    for name in os.listxattr(path, follow_symlinks=False):
        yield name, os.getxattr(path, name, follow_symlinks=False)
