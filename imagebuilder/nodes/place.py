# SPDX-License-Identifier: Apache-2.0
"""Files of the tree, put in their place whole or not at all."""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass
from pathlib import Path

WEB_GROUPS = ("www-data", "nginx", "http")  # whom nginx runs as, on Debian and elsewhere


@dataclass(frozen=True)
class Access:
    """Who may read what a node fetches: modes of folders and of secret files, and their group.

    `group` is -1 where there is none to give them to.
    """

    folder: int = 0o755
    secret: int = 0o644
    group: int = -1


def find_access() -> Access:
    """The web server's group alone, where it exists and we may give files to it; else everybody."""
    there = {entry.gr_name: entry.gr_gid for entry in grp.getgrall()}
    group = next((there[name] for name in WEB_GROUPS if name in there), -1)
    if group == -1 or (os.geteuid() != 0 and group not in os.getgroups()):
        return Access()
    return Access(0o750, 0o640, group)


def place_file(
    path: Path, content: bytes, mode: int = 0o644, *, group: int = -1, durable: bool = False
) -> bool:
    """Replace or make the file unless it is so already; whether that was needed.

    The name it has meanwhile is fixed, so that a killed command leaves one at most: the caller
    holds a lock.  `durable` waits until it is on the disk.
    """
    if is_so(path, content, mode, group):
        return False
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        new.touch(0o600, exist_ok=False)
        with new.open("wb") as stream:
            stream.write(content)
            os.fchown(stream.fileno(), -1, group)
            os.fchmod(stream.fileno(), mode)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)
    return True


def is_so(path: Path, content: bytes, mode: int, group: int) -> bool:
    """Whether the file has this content, mode and group (-1: any)."""
    try:
        found = path.stat(follow_symlinks=False)
        return (
            found.st_mode & 0o7777 == mode
            and group in (-1, found.st_gid)
            and found.st_size == len(content)
            and path.read_bytes() == content
        )
    except FileNotFoundError:
        return False


def place_folder(path: Path, access: Access) -> None:
    """Make the folder, or give it the modes of `access`."""
    path.mkdir(exist_ok=True)
    os.chown(path, -1, access.group)
    path.chmod(access.folder)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
