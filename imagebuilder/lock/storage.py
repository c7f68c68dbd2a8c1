# SPDX-License-Identifier: Apache-2.0
"""Folders and files that are whole and durable, and errors a person can act on."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import FullError, HostError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """What is done here writes below `folder`: OSError becomes HostError, or FullError."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        raise (FullError if full else HostError)(
            "no space left" if full else f"cannot write: {error.strerror or error}",
            where=os.fspath(error.filename or folder),
            hint="free some, or choose another place with IMAGEBUILDER_STATE or IMAGEBUILDER_CACHE"
            if full
            else "choose a place that is yours with IMAGEBUILDER_STATE or IMAGEBUILDER_CACHE",
        ) from error


def make_folder(folder: Path) -> int:
    """Make `folder` with its parents, owned as the nearest one that was there; its owner's uid."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            above = folder.parent.stat()
            os.chown(folder, above.st_uid, above.st_gid)
    return folder.stat().st_uid


def beside(path: Path) -> Path:
    """A name for the unfinished `path`, which no other thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` unless it has this content; readable by its owner alone."""
    if path.is_file() and path.read_bytes() == content:
        return
    new = beside(path)
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
