# SPDX-License-Identifier: Apache-2.0
"""What engines share: the request, and dpkg's --path-exclude if they unpack without dpkg."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from imagebuilder.store.upper import walk
from imagebuilder.workspace import Workspace

# Files that the host's apt and dpkg read when engines run them.
ON_HOST = (
    "/var/lib/dpkg", "/etc/apt/apt.conf", "/etc/apt/apt.conf.d", "/etc/apt/keyrings",
    "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d", "/etc/debian_version", "/etc/debootstrap",
    "/etc/dpkg",
)  # fmt: skip
ALTERNATIVES = "etc/alternatives"


@dataclass(frozen=True)
class BootstrapRequest:
    """A first layer with all of `packages`; the archive `repository` has exactly these."""

    suite: str
    architecture: str
    packages: tuple[str, ...]
    repository: Path
    path_excludes: tuple[str, ...]


def remove_excluded(workspace: Workspace, globs: tuple[str, ...]) -> None:
    """Remove what dpkg would leave out while unpacking.

    Also removes folders that become empty, and the links of update-alternatives(1) to removed
    files: dpkg would create neither.  dpkg's globs are fnmatch(3) without FNM_PATHNAME, like
    Python's.
    """
    if not globs:
        return
    excluded = re.compile("|".join(map(translate, globs)))
    folders = []
    for path, _ in list(walk(workspace.tree)):
        name = f"/{os.fspath(path.relative_to(workspace.tree))}"
        if path.is_symlink():
            if excluded.match(name) or (
                name.startswith(f"/{ALTERNATIVES}/") and excluded.match(os.fspath(path.readlink()))
            ):
                path.unlink()
        elif not excluded.match(name):
            continue
        elif path.is_dir():
            folders.append(path)
        else:
            path.unlink()
    for folder in sorted(folders, reverse=True):  # the deepest of each branch first
        if not any(folder.iterdir()):
            folder.rmdir()
