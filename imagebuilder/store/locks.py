# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: flock(2) files that die with whoever holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.rights import check_writable


@contextmanager
def held(
    path: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock `path` (made when missing); `waiting` is called if somebody has it.

    Raises RootError where it is not ours to take.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        check_writable(path.parent)
        raise
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
