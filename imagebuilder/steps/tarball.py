# SPDX-License-Identifier: Apache-2.0
"""Files of overlays as a tar stream that GNU tar unpacks inside the sandbox.

Unpacking inside is what makes it safe: with the root as /, no symlink, `..` or absolute link in the
tree or planted in the root can lead to the host.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.files import plain_file
from imagebuilder.recipe.types import TreeFile
from imagebuilder.steps.placed import PlannedFile, changed
from imagebuilder.workspace import Workspace, check_places


def run_place(workspace: Workspace, files: Sequence[TreeFile]) -> None:
    """Put `files` into the root.  Raises WorkError when one would not end up in it."""
    if not files:
        return
    check_places(workspace, [f.target for f in files])
    archive = workspace.work / f"{workspace.upper}.tar"
    make_archive(files, archive)
    with archive.open("rb") as stream:
        workspace.run(
            # An existing symlink to a directory (/etc/alternatives, merged /usr) is kept.
            ["tar", "--extract", "--same-owner", "--preserve-permissions",
             "--keep-directory-symlink", "--no-overwrite-dir", "--directory=/"],
            stdin=stream,
        )  # fmt: skip
    archive.unlink()


def make_archive(files: Sequence[TreeFile], archive: Path) -> None:
    """Write `files` as a tar archive, in order of their targets; times are 0."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(files, key=lambda f: f.target):
            add(tar, file)


def add(tar: tarfile.TarFile, file: TreeFile) -> None:
    """One member; owners go by name, which the root resolves.

    Raises WorkError if the file has changed since the plan.
    """
    member = tarfile.TarInfo(file.target.lstrip("/"))
    member.mode = file.mode
    member.uname, member.gname = file.owner, file.group
    if file.link is not None:
        member.type, member.linkname = tarfile.SYMTYPE, file.link
        tar.addfile(member)
    elif file.content is not None:
        member.size = len(file.content)
        tar.addfile(member, io.BytesIO(file.content))
    else:
        assert file.source is not None
        with plain_file(file.source) as stream:
            member.size = os.fstat(stream.fileno()).st_size
            planned = PlannedFile(file.source, stream)
            tar.addfile(member, planned)
        if planned.sum.hexdigest() != file.digest:
            raise changed(file.source)
