# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: flock(2) on a file; the kernel frees them at exit.

Whoever may open a file may lock it, and keep everybody else waiting.  So a lock is a file of its
own, which its owner alone may open: other users of the host cannot stop a command.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from imagebuilder.plain import open_plain
from imagebuilder.rights import check_writable

HELD = Path("/proc/locks")
OTHERS = 0o077
# So long a process waits for its turn before it shares a lock after all: it may have another lock,
# for which a process waits that shares this one.  Far longer than gc takes.
TURN_S = 900.0
POLL_S = 0.1


@contextmanager
def file_lock(
    path: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock `path`, a file that is made when missing, and closed to others.

    `waiting` is called if another process has it; it may raise instead of waiting.  Who waits to
    have the lock alone gets it before those who come later to share it.  Raises RootError if we may
    not make the file, OSError if it is no file.
    """
    descriptor = open_lock(path)
    try:
        with contextlib.suppress(PermissionError):  # of another's file
            if os.fstat(descriptor).st_mode & OTHERS:
                os.fchmod(descriptor, 0o600)
        if shared:
            waiting = None if await_turn(path, waiting) else waiting
        if not take_lock(descriptor, shared=shared):
            if waiting:
                waiting()
            with nullcontext() if shared else turn(path):
                take_lock(descriptor, shared=shared, wait=True)
        yield
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """The descriptor of the file, which is made when missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_plain(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except PermissionError:
        check_writable(path.parent)
        raise


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Keep those who come from now on from sharing the lock `path`.

    flock(2) lets in whoever may share: while newcomers overlap, nobody would get the lock alone.
    """
    descriptor = open_lock(turn_of(path))
    try:
        take_lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def turn_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.turn")


def await_turn(path: Path, waiting: Callable[[], None] | None) -> bool:
    """Wait while somebody waits to have the lock `path` alone; whether `waiting` was called.

    Does not wait if we, or a process that started us, share it already: that somebody waits for us.
    """
    if not is_locked(turn_of(path)) or shares(path):
        return False
    if waiting:
        waiting()
    until = time.monotonic() + TURN_S
    while is_locked(turn_of(path)) and time.monotonic() < until:
        time.sleep(POLL_S)
    return waiting is not None


def shares(path: Path) -> bool:
    """Whether this process or one that started it has the lock `path`."""
    if not path.exists():
        return False
    holders, process = {number for _, number in listed(path)}, os.getpid()
    while process and process not in holders:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
        process = int(stat.rpartition(")")[2].split()[1])
    return process in holders


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
    """The same by the kernel's list of locks."""
    return any(shared or kind == "WRITE" for kind, _ in listed(path))


def listed(path: Path) -> Iterator[tuple[str, int]]:
    """The kind (READ: shared) and the process of each lock of a file that the kernel lists, which
    are those of our PID namespace (proc(5)).

    btrfs and overlayfs have other devices there than stat(2) tells.
    """
    found = path.stat()
    major, minor = os.major(found.st_dev), os.minor(found.st_dev)
    place, anonymous = f"{major:02x}:{minor:02x}:{found.st_ino}", major == 0
    for line in HELD.read_text().splitlines():
        _, kind, *words = line.split()
        if kind != "FLOCK" or len(words) < 4:
            continue
        if words[3] == place or (anonymous and words[3].rpartition(":")[2] == str(found.st_ino)):
            yield words[1], int(words[2])


def take_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder; False if another process has it and we do not wait."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return True
    return False
