# SPDX-License-Identifier: Apache-2.0
"""Files and names that are whole, and on the disk when they are said to be."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.files import write_file


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder (flock(2) on itself), which the kernel drops with this process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_owned(folder: Path) -> bool:
    """Whether a living process holds the lock of a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Replace or make a file in one step; what is no file, such as /dev/stdout, is written to.

    Raises InputError for a folder or where there is none to write into, and OSError.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    place = path.resolve()  # a symlink stays one
    if place.is_dir():
        raise InputError("is a folder", where=os.fspath(path), hint="name a file in it")
    if not place.parent.is_dir():
        raise InputError(
            "there is no such folder", where=os.fspath(place.parent), hint="make it first"
        )
    write_file(place, text.encode())
