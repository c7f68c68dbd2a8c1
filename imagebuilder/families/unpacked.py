# SPDX-License-Identifier: Apache-2.0
"""Give packages of the pool to a package manager, and remove what it leaves in a first layer."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.files import place_file
from imagebuilder.root import Root
from imagebuilder.store.upper import remove

NOBODY = 65534  # the kernel's uid for an owner that has no id in a sandbox
# Folders of other word sizes, which debootstrap and mkosi create even if no package fills them.
WORD_SIZES = ("lib32", "libx32")


def link_or_copy(package: Path, path: Path) -> None:
    """Hard-link a file from the pool, or copy it if that is impossible."""
    try:
        os.link(package, path)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        shutil.copyfile(package, path)


def remove_traces(tree: Path, traces: Sequence[str]) -> None:
    """Remove what an engine left besides packages, including below mount points.

    `traces` are paths below the root.  Maintainer scripts have run in the tree, and this runs
    outside of the sandbox: symlinks lead where they lead in the tree, never to files of the host.
    """
    root = Root(tree)
    for name in traces:
        remove_in(root, name)
    for name in WORD_SIZES:
        if root.is_dir(f"/usr/{name}") and not root.names(f"/usr/{name}"):
            remove_in(root, f"usr/{name}")
            remove_in(root, name)
    own = root.place("/etc/machine-id")
    if own and os.path.lexists(own):  # a root belongs to no machine, and must be reproducible
        remove(own)
        place_file(own, b"", 0o644)
    if root.link_at("/etc/resolv.conf") == "":  # a link is the resolver's, a file the builder's
        remove_in(root, "etc/resolv.conf")
    for name in ("proc", "sys"):
        # What is mounted there in a sandbox belongs to nobody, and an engine may have copied that.
        folder = tree / name
        if folder.is_dir() and not folder.is_symlink() and folder.lstat().st_uid == NOBODY:
            os.chown(folder, 0, 0, follow_symlinks=False)
    for name in ("dev", "run", "tmp"):
        for entry in root.names(f"/{name}"):
            remove_in(root, f"{name}/{entry}")


def remove_in(root: Root, name: str) -> None:
    """Remove a file, folder or symlink of a root; nothing that is not there."""
    place = root.place(f"/{name}")
    if place and os.path.lexists(place):
        remove(place)
