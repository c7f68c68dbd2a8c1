# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: flock(2) on a file; the kernel frees them at exit.

Whoever may open a file may lock it, and keep everybody else waiting.  So a lock is a file of its
own, which its owner alone may open: other users of the host cannot stop a command.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.plain import open_plain
from imagebuilder.rights import check_writable

HELD = Path("/proc/locks")
OTHERS = 0o077


@contextmanager
def file_lock(
    path: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock `path`, a file that is made when missing, and closed to others.

    `waiting` is called if another process has it; it may raise instead of waiting.  Raises
    RootError if we may not make the file, OSError if it is no file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except PermissionError:
        check_writable(path.parent)
        raise
    try:
        with contextlib.suppress(PermissionError):  # of another's file
            if os.fstat(descriptor).st_mode & OTHERS:
                os.fchmod(descriptor, 0o600)
        if not take_lock(descriptor, shared=shared):
            if waiting:
                waiting()
            take_lock(descriptor, shared=shared, wait=True)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path, *, shared: bool = False) -> bool:
    """Whether a living process holds the lock of this file or folder; with `shared`, even if it
    shares the lock.

    Two processes that ask at once do not take each other for the holder, unless with `shared`.
    Who may not open the file is told what the kernel lists.
    """
    try:
        # A pipe would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return is_listed(path, shared=shared)
    try:
        return not take_lock(descriptor, shared=not shared)
    finally:
        os.close(descriptor)


def is_listed(path: Path, *, shared: bool) -> bool:
    """The same by the kernel's list of locks, which has those of our PID namespace (proc(5)).

    btrfs and overlayfs have other devices there than stat(2) tells.
    """
    found = path.stat()
    major, minor = os.major(found.st_dev), os.minor(found.st_dev)
    place, anonymous = f"{major:02x}:{minor:02x}:{found.st_ino}", major == 0
    for line in HELD.read_text().splitlines():
        _, kind, *words = line.split()
        if kind != "FLOCK" or len(words) < 4 or (words[1] != "WRITE" and not shared):
            continue
        if words[3] == place or (anonymous and words[3].rpartition(":")[2] == str(found.st_ino)):
            return True
    return False


def take_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder; False if another process has it and we do not wait."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return True
    return False
