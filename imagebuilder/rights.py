# SPDX-License-Identifier: Apache-2.0
"""What only root may do: each check is made before anything is changed, and raises RootError."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from imagebuilder.errors import HostError, RootError


def check_root(doing: str) -> None:
    """Raise RootError unless we are root; `doing` is the subject: `building an image`."""
    if os.geteuid() != 0:
        raise RootError(f"{doing} needs root")


def check_enterable(folder: Path) -> None:
    """Raise RootError for a folder of images that is there and that we may not look into."""
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):
        return  # whoever wants to make it says so
    except PermissionError as error:
        raise RootError(
            f"{folder} is readable by root only, because it holds the setuid programs of images"
        ) from error


def check_writable(folder: Path) -> None:
    """Raise RootError for a folder that we may not change or make, HostError where nobody may."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(there, os.W_OK):
        return
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        hint = f"findmnt --target {there} shows the mount: mount it writable"
        raise HostError("is on a read-only file system", where=os.fspath(folder), hint=hint)
    raise RootError(f"this writes {folder}, but {there} belongs to {owner_of(there)}")


def owner_of(path: Path) -> str:
    """The name of the owner, or the number of one without a name."""
    number = path.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
