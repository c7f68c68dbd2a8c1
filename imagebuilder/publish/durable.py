# SPDX-License-Identifier: Apache-2.0
"""Changes of the tree that happen as a whole and are on the disk when they are said to be done."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import FullError
from imagebuilder.process import run

AT_FDCWD = -100
RENAME_EXCHANGE = 2
FULL = (errno.ENOSPC, errno.EDQUOT)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last: a rename is atomic, but on the disk only after this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_filesystem(path: Path) -> None:
    """Bring everything written to the file system of `path` to the disk, with one call."""
    run(["sync", "--file-system", "--", path])


def move_in(staged: Path, place: Path) -> None:
    """Give a complete folder its name, which must be free, for good."""
    staged.rename(place)
    sync_folder(place.parent)


def exchange(one: Path, other: Path) -> None:
    """Swap two names in one step (renameat2(2) with RENAME_EXCHANGE, which Python lacks).

    With two renames there would be a moment without a release.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(other))
    for folder in {one.parent, other.parent}:
        sync_folder(folder)


def point_link(link: Path, target: str) -> None:
    """Make the symlink `link` lead to `target`; whoever resolves it finds the old or the new one.

    The caller holds a lock: the name it passes through is fixed, so that a killed command leaves
    at most one, which the next one replaces.
    """
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.rename(link)
    sync_folder(link.parent)


def write_file(path: Path, content: bytes) -> None:
    """Replace or make a file, for all to read, in one step."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.chmod(0o644)
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def space_needed(path: Path) -> Iterator[None]:
    """Turn a full disk into a FullError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise full_disk(path) from error


def full_disk(path: Path, what: str = "the disk is full") -> FullError:
    """The error for a tree without space."""
    return FullError(
        f"{what}; nothing was changed",
        where=os.fspath(path),
        hint="imagebuilder gc --releases removes old releases; --tree names another place",
    )
