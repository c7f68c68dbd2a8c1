# SPDX-License-Identifier: Apache-2.0
"""The one way to open what must be a file: never waits for a pipe, a socket or a device.

Whoever opens a pipe waits for somebody at its other end, and a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

NO_FILE = "Is not a file"
CHUNK = 1 << 16


def open_plain(path: str | Path, flags: int, mode: int = 0o644) -> int:
    """A descriptor of a file.  Raises OSError, also for what is no file."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # of a socket, and of a pipe that nobody reads
            raise OSError(errno.ENXIO, NO_FILE, os.fspath(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, NO_FILE, os.fspath(path))
    return descriptor


def read_most(descriptor: int, most: int) -> bytes:
    """The bytes of an open file, `most` + 1 of them at most: more than `most` are too many.

    Asks for no more than the file has.  Python takes memory for all that it is asked for, which
    costs more time than the bytes of a small file.
    """
    left = most + 1
    step = (os.fstat(descriptor).st_size or CHUNK) + 1  # files of /proc have no size
    parts = []
    while part := os.read(descriptor, min(step, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_end(path: Path, most: int = 0, *, follow: bool = True) -> bytes:
    """The whole lines in the last `most` bytes of a file, or all of it; `follow` symlinks or not.

    Raises OSError, also for what is no file.
    """
    descriptor = open_plain(path, os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as stream:
        start = stream.seek(max(0, os.fstat(descriptor).st_size - most) if most else 0)
        content = stream.read()
    return content.partition(b"\n")[2] if start else content


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file: its inode, time and size; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def is_special(path: Path) -> bool:
    """Whether there is a pipe, a socket or a device."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_plain(path: Path) -> None:
    """Raise OSError if there is something else than a file, before a program opens it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ENXIO, NO_FILE, os.fspath(path))
