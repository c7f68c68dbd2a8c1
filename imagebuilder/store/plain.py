# SPDX-License-Identifier: Apache-2.0
"""Whether the objects of a repository are files, before the program `ostree` opens them.

It waits without end for somebody to write into a named pipe that has the place of an object.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from imagebuilder.store.objects import (
    DamagedObjectError,
    object_path,
    read_commit,
    read_folder,
)

NO_FILE = "is not a file"
COMMIT, DIRTREE, DIRMETA, FILE = "commit", "dirtree", "dirmeta", "file"
KINDS = (COMMIT, DIRTREE, DIRMETA, FILE)


def is_plain(path: Path) -> bool:
    """Whether an object may be opened: no for a pipe, folder or device, and for a link other than
    a bare repository keeps of a link.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:  # whoever opens it says why
        return True
    return stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and path.suffix == f".{FILE}")


def check_objects(repo: Path) -> None:
    """Raise DamagedObjectError for an object of the repository that is not a file."""
    for folder in list(os.scandir(repo / "objects")):
        if not folder.is_dir(follow_symlinks=False):
            continue
        for entry in list(os.scandir(folder.path)):
            if entry.is_file(follow_symlinks=False):
                continue
            path = Path(entry.path)
            if entry.name.rpartition(".")[2] in KINDS and not is_plain(path):
                raise DamagedObjectError(path, NO_FILE)


def check_top(repo: Path, commit: str) -> None:
    """The same for what leads to the files in a commit's top folder alone, which is quick."""

    def is_there(checksum: str, kind: str) -> bool:
        path = repo / "objects" / object_path(checksum, kind)
        if not is_plain(path):
            raise DamagedObjectError(path, NO_FILE)
        return path.exists()

    if not is_there(commit, COMMIT):
        return  # of the repository's parent, or missing: ostree says so
    tree, meta = read_commit(repo, commit)
    is_there(meta, DIRMETA)
    if is_there(tree, DIRTREE):
        for checksum in read_folder(repo, tree).files.values():
            is_there(checksum, FILE)
