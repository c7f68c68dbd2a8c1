# SPDX-License-Identifier: Apache-2.0
"""Everything in a tree as it lies on this host; no symlink is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.files import entries_below


@dataclass(frozen=True)
class Found:
    """Something in a tree: its path in there, absolute, and what lstat(2) says of it."""

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
    """All that is below the folder `below` of `tree`, in order, folders before what they hold."""
    folder = Path(f"{tree}{below}")
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in entries_below(folder):
        yield Found(
            entry.path[len(os.fspath(tree).rstrip("/")) :], entry.stat(follow_symlinks=False)
        )


def read_file(tree: Path, path: str, most: int) -> bytes:
    """The first `most` bytes of a file that walk() found; nothing if it cannot be read."""
    try:
        descriptor = os.open(f"{tree}{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(most)
