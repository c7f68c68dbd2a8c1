# SPDX-License-Identifier: Apache-2.0
"""Traverse a tree on this host without following symlinks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.folders import entries_below


@dataclass(frozen=True)
class Found:
    """An entry of a tree: its absolute path in it, and its lstat(2)."""

    path: str
    info: os.stat_result

    @property
    def mode(self) -> int:
        return self.info.st_mode

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.info.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.info.st_mode)


def walk(tree: Path, below: str = "/") -> Iterator[Found]:
    """Every entry below the folder `below` of `tree`, in order, folders before their content."""
    folder = Path(f"{tree}{below}")
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in entries_below(folder):
        yield Found(
            entry.path[len(os.fspath(tree).rstrip("/")) :], entry.stat(follow_symlinks=False)
        )


def read_file(tree: Path, path: str, most: int) -> bytes:
    """The first `most` bytes of a file that walk() found; empty if it cannot be read."""
    try:
        descriptor = os.open(f"{tree}{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(most)
