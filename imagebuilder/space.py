# SPDX-License-Identifier: Apache-2.0
"""A disk without space: which one it is, and the error that says so."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir

from imagebuilder.errors import FullError
from imagebuilder.ui import format_size

FREE_SPACE = (
    "see with df -h which disk is full; imagebuilder gc frees what no image needs, and "
    "gc --releases old releases"
)
FREE_FILES = FREE_SPACE.replace("df -h", "df -i")
FEW_FILES = 8


def no_space(*folders: Path) -> FullError:
    """The error for a full disk when the system did not name a file.

    Names where the disk is mounted that has one of `folders`, or the folder of temporary files, and
    the least space of these.  The folders themselves may be gone when somebody reads this.
    """
    place = mount_point(min((*folders, temporary_folder()), key=space_left))
    files, size = space_left(place)
    if files < FEW_FILES:
        return FullError(f"no space left: {files} files", where=os.fspath(place), hint=FREE_FILES)
    what = f"no space left: {format_size(size)} free"
    return FullError(what, where=os.fspath(place), hint=FREE_SPACE)


def space_left(folder: Path) -> tuple[int, int]:
    """Files that can still be made, FEW_FILES if there are more, and bytes that can be written."""
    found = os.statvfs(folder)
    files = found.f_favail if found.f_files else FEW_FILES  # btrfs has no such limit
    return min(files, FEW_FILES), found.f_bavail * found.f_frsize


def mount_point(folder: Path) -> Path:
    """The highest folder above `folder`, or itself, on the same file system."""
    folder = folder.resolve()
    device = folder.stat().st_dev
    while folder.parent != folder and folder.parent.stat().st_dev == device:
        folder = folder.parent
    return folder


def temporary_folder() -> Path:
    try:
        return Path(gettempdir())
    except FileNotFoundError:  # it takes no file any more
        return Path(os.environ.get("TMPDIR") or "/tmp")
