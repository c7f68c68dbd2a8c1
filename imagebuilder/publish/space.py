# SPDX-License-Identifier: Apache-2.0
"""A full disk under the tree: an error that says what to do, and space for doing it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from imagebuilder.errors import FullError
from imagebuilder.files import filling
from imagebuilder.tree import Tree

WHAT = "the disk is full; nothing was changed"
HINT = "remove old releases with imagebuilder gc --releases, or name another tree with --tree"

RESERVE = 1 << 20  # bytes: removing releases writes an event of each, and makes a folder


def space_needed(path: Path) -> AbstractContextManager[None]:
    """Turn a full disk into a FullError that says what to do."""
    return filling(path, HINT, WHAT)


def full_disk(path: Path) -> FullError:
    """The error for a tree without space."""
    return FullError(WHAT, where=os.fspath(path), hint=HINT)


def keep_reserve(tree: Tree) -> None:
    """Have the file whose space use_reserve() frees, if there is space for it."""
    with suppress(OSError):
        descriptor = os.open(tree.reserve, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < RESERVE:
                os.posix_fallocate(descriptor, 0, RESERVE)
        finally:
            os.close(descriptor)


def use_reserve(tree: Tree) -> None:
    """Free a little space on a disk that may be full, for whoever makes more."""
    tree.reserve.unlink(missing_ok=True)
