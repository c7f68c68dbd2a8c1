# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: flock(2) on a file or a folder; the kernel frees them at exit."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.rights import check_writable


@contextmanager
def file_lock(
    path: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock `path`, a file that is made when missing.

    `waiting` is called if another process has it; it may raise instead of waiting.  Raises
    RootError if we may not make the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        check_writable(path.parent)
        raise
    try:
        if not take_lock(descriptor, shared=shared):
            if waiting:
                waiting()
            take_lock(descriptor, shared=shared, wait=True)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a folder itself.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        take_lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path, *, shared: bool = False) -> bool:
    """Whether a living process holds the lock of this file or folder; with `shared`, even if it
    shares the lock.

    Two processes that ask at once do not take each other for the holder, unless with `shared`.
    """
    try:
        # A pipe would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not take_lock(descriptor, shared=not shared)
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder; False if another process has it and we do not wait."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return True
    return False
