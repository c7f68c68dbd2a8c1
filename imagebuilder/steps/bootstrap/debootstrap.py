# SPDX-License-Identifier: Apache-2.0
"""debootstrap(8): the older engine, for those who trust nothing else."""

from __future__ import annotations

import os
import re
from fnmatch import translate
from urllib.parse import quote

from imagebuilder.steps.bootstrap.request import BootstrapRequest
from imagebuilder.steps.packages import NO_INITRD
from imagebuilder.steps.workspace import Workspace
from imagebuilder.store.upper import walk


def run_debootstrap(request: BootstrapRequest, workspace: Workspace) -> None:
    """Fill `workspace.merged`.  Raises WorkError.

    The script of `sid` is named, because a builder's debootstrap may be older than the suite.
    """
    workspace.run_engine(
        [
            "debootstrap", "--no-check-gpg", "--variant=minbase", "--merged-usr",
            f"--arch={request.architecture}", f"--include={','.join(request.packages)}",
            request.suite, workspace.merged, f"file://{quote(os.fspath(request.repository))}",
            "/usr/share/debootstrap/scripts/sid",
        ],
        env=NO_INITRD,
    )  # fmt: skip
    remove_excluded(workspace, request.path_excludes)


def remove_excluded(workspace: Workspace, globs: tuple[str, ...]) -> None:
    """What dpkg's --path-exclude does while unpacking: debootstrap has no way to ask for it.

    dpkg's globs are fnmatch(3) without FNM_PATHNAME, as Python's are; folders stay.
    """
    if not globs:
        return
    excluded = re.compile("|".join(map(translate, globs)))
    for path, _ in list(walk(workspace.tree)):
        name = f"/{os.fspath(path.relative_to(workspace.tree))}"
        if excluded.match(name) and (path.is_symlink() or not path.is_dir()):
            path.unlink()
