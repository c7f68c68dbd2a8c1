# SPDX-License-Identifier: Apache-2.0
"""dpkg's --path-exclude for engines that unpack without dpkg."""

from __future__ import annotations

import os
import re
from fnmatch import translate

from imagebuilder.store.upper import walk
from imagebuilder.workspace import Workspace

ALTERNATIVES = "etc/alternatives"


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
