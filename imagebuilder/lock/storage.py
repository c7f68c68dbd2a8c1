# SPDX-License-Identifier: Apache-2.0
"""Folders that belong to whom they should, and errors a person can act on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import FullError, HostError
from imagebuilder.files import is_disk_full
from imagebuilder.ui import format_size


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """What is done here writes below `folder`: OSError becomes HostError, or FullError."""
    try:
        yield
    except OSError as error:
        full = is_disk_full(error)
        raise (FullError if full else HostError)(
            "no space left" if full else f"cannot write: {error.strerror or error}",
            where=os.fspath(error.filename or folder),
            hint="free some, or choose another place with IMAGEBUILDER_STATE or IMAGEBUILDER_CACHE"
            if full
            else "choose a place that is yours with IMAGEBUILDER_STATE or IMAGEBUILDER_CACHE",
        ) from error


def check_free(place: Path, wanted: int, why: str, hint: str) -> None:
    """Raise FullError unless `wanted` bytes are free at `place`; `why` is a clause with to."""
    free = shutil.disk_usage(place).free
    if free < wanted:
        raise FullError(
            f"no space left: {format_size(wanted)} needed {why}, {format_size(free)} free",
            where=os.fspath(place),
            hint=hint,
        )


def make_folder(folder: Path) -> int:
    """Make `folder` with its parents, owned as the nearest one that was there; its owner's uid."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            above = folder.parent.stat()
            os.chown(folder, above.st_uid, above.st_gid)
    return folder.stat().st_uid
