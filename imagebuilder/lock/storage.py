# SPDX-License-Identifier: Apache-2.0
"""Create folders with the right owner, and explain errors of the file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import FullError, HostError
from imagebuilder.files import filling
from imagebuilder.trusted import make_new
from imagebuilder.ui import format_size


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn an OSError while writing below `folder` into HostError or FullError."""
    variables = "IMAGEBUILDER_STATE or IMAGEBUILDER_CACHE"
    try:
        with filling(folder, f"free some space, or set {variables} to another place"):
            yield
    except OSError as error:
        raise HostError(
            f"cannot write: {error.strerror or error}",
            where=os.fspath(error.filename or folder),
            hint=f"set {variables} to a place that you own",
        ) from error


def check_free(place: Path, wanted: int, why: str, hint: str) -> None:
    """Raise FullError unless `wanted` bytes are free at `place`; `why` reads like "to fetch"."""
    free = shutil.disk_usage(place).free
    if free < wanted:
        raise FullError(
            f"no space left: {format_size(wanted)} needed {why}, {format_size(free)} free",
            where=os.fspath(place),
            hint=hint,
        )


def make_folder(folder: Path) -> int:
    """Make `folder` and its parents, owned as the nearest existing one; returns its owner's uid."""
    if not folder.exists():
        make_folder(folder.parent)
        if make_new(folder) and os.geteuid() == 0:
            above = folder.parent.stat()
            os.chown(folder, above.st_uid, above.st_gid)
    return folder.stat().st_uid


def make_users_folder(folder: Path, name: str) -> Path:
    """The folder `name` below `folder` for our user: root has one of its own, NAME-root, if
    `folder` belongs to somebody else (under sudo).
    """
    owner = make_folder(folder)
    own = folder / (name if owner == os.geteuid() else f"{name}-root")
    own.mkdir(exist_ok=True)
    return own
