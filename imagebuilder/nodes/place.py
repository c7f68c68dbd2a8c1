# SPDX-License-Identifier: Apache-2.0
"""Who may read what a node fetches."""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.files import set_access

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


def place_folder(path: Path, access: Access) -> None:
    """Make the folder, or give it the modes of `access`."""
    path.mkdir(exist_ok=True)
    set_access(path, access.folder, access.group)
