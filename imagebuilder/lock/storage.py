# SPDX-License-Identifier: Apache-2.0
"""Folders that belong to whom they should, and errors a person can act on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import FullError, HostError
from imagebuilder.files import filling
from imagebuilder.ui import format_size


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """What is done here writes below `folder`: OSError becomes HostError, or FullError."""
    another = "with IMAGEBUILDER_STATE or IMAGEBUILDER_CACHE"
    try:
        with filling(folder, f"free some, or choose another place {another}"):
            yield
    except OSError as error:
        raise HostError(
            f"cannot write: {error.strerror or error}",
            where=os.fspath(error.filename or folder),
            hint=f"choose a place that is yours {another}",
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
