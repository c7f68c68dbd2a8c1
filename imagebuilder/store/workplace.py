# SPDX-License-Identifier: Apache-2.0
"""Throw-away directories of builds: made under a lock, swept when their owner is gone."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.files import is_disk_full, make_private
from imagebuilder.folders import read_mounts
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.process import run
from imagebuilder.space import no_space

# ioctl_iflags(2), chattr(1) +T: on ext4 what is made in such a folder lies apart on the disk.
GET_FLAGS, SET_FLAGS, TOP_OF_HIERARCHIES = 0x80086601, 0x40086602, 0x00020000
OWNED = ".owned"
KEPT = ".kept"


@contextmanager
def workplace(state: Path, name: str) -> Iterator[Path]:
    """A fresh directory below `state`/work, gone at the end unless keep() was called on it.

    Its lock tells sweep() that somebody lives there; the kernel drops it with the process.  Raises
    FullError for a full disk of which the system does not name a file.
    """
    top = state / "work"
    with file_lock(state / "locks" / "work"):
        sweep(top)
        place = top / name
        make_private(top)
        spread(top)
        place.mkdir()
        owned = file_lock(place / OWNED)
        owned.__enter__()
    try:
        yield place
    except OSError as error:
        if not is_disk_full(error) or error.filename:
            raise
        raise no_space(place) from error
    finally:
        owned.__exit__(None, None, None)
        if not (place / KEPT).exists():
            remove_tree(place)


def spread(top: Path) -> None:
    """Have each place below `top` begin elsewhere on the disk, where the file system can do that.

    ext4 does not use again what was freed within seconds, but looks at each such inode for each
    folder that it makes nearby: the fifth checkout of 2,000 folders took three times as long.
    """
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            flags = struct.unpack("l", fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)))[0]
            if not flags & TOP_OF_HIERARCHIES:
                fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags | TOP_OF_HIERARCHIES))
    finally:
        os.close(descriptor)


def new_id(profile: str) -> str:
    """A name for a build: profile, local time of day in UTC, process."""
    return f"{profile}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"


def keep(place: Path, trees: tuple[str, ...]) -> None:
    """Leave `place` for a person to look at, with the names that stacked are the failed tree.

    `gc` removes it.
    """
    (place / KEPT).write_text("\n".join(trees))


def sweep(top: Path, *, kept: bool = False) -> int:
    """Remove the places below `top` that nobody owns (with `kept`, those kept too); how many."""
    swept = 0
    if os.path.lexists(top) and (top.is_symlink() or not top.is_dir()):
        hint = f"move it away: mv {top} {top}.old"
        raise WorkError("is not a folder", where=os.fspath(top), hint=hint)
    for place in sorted(top.iterdir()) if top.is_dir() else []:
        if place.is_symlink() or not place.is_dir():
            place.unlink()  # not a place of ours, and in the way of nobody
            swept += 1
            continue
        if not is_locked(place / OWNED) and (kept or not (place / KEPT).exists()):
            remove_tree(place)
            swept += 1
    return swept


def remove_tree(place: Path) -> None:
    """Remove a directory of ours; refuses while anything is mounted below it.

    `rm -rf` through a mounted /dev has destroyed hosts (void-mklive #364).  Raises WorkError.
    """
    below = f"{place.resolve()}/"
    for mounted, _ in read_mounts():
        if f"{mounted}/".startswith(below):
            raise WorkError(
                f"{mounted} is mounted inside a directory that would be removed",
                where=os.fspath(place),
                hint=f"find out who mounted it, then umount {mounted}",
            )
    if place.is_dir():
        run(["rm", "-rf", "--one-file-system", "--", place])
    else:
        shutil.rmtree(place, ignore_errors=True)
