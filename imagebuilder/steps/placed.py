# SPDX-License-Identifier: Apache-2.0
"""Files of a step as its digest sees them, which of them an initrd may read, and how they get in.

A file of the project may change between the plan and the step that reads it, because somebody works
on it.  A layer that has the new content under the digest of the old one would be reused for ever.

GNU tar unpacks the files of overlays inside the sandbox, which is what makes it safe: with the root
as /, no symlink, `..` or absolute link in the tree or planted in the root can lead to the host.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.files import plain_file
from imagebuilder.recipe.types import Script, TreeFile
from imagebuilder.workspace import Workspace, check_places

# Where dracut, udev and kmod look.  A file below one of these is part of the initrd's world;
# everything else can change without a new initrd.
BOOT_PLACES = (
    "/etc/dracut.conf", "/etc/dracut.conf.d/", "/usr/lib/dracut/",
    "/etc/kernel/", "/usr/lib/kernel/",
    "/etc/modprobe.d/", "/usr/lib/modprobe.d/", "/etc/modules-load.d/", "/usr/lib/modules-load.d/",
    "/etc/udev/", "/usr/lib/udev/", "/usr/lib/modules/", "/usr/lib/firmware/",
    "/etc/systemd/network/", "/usr/lib/systemd/network/", "/etc/sysctl.d/", "/usr/lib/sysctl.d/",
)  # fmt: skip


def is_boot_file(target: str) -> bool:
    """Whether the initrd may read a file at `target`."""
    return target.startswith(BOOT_PLACES)


def files_input(files: Sequence[TreeFile]) -> Mapping[str, Json]:
    """Files as a digest sees them."""
    return {
        f.target: f"{f.mode:04o} {f.owner}:{f.group} "
        + (f"-> {f.link}" if f.link is not None else f.digest)
        for f in files
    }


def changed(path: Path) -> WorkError:
    """The error of a file or folder whose content is not what the plan read."""
    return WorkError(
        "has changed since this build read it",
        where=os.fspath(path),
        hint="run the command again; it builds the layer with the new content",
    )


class PlannedFile:
    """A file of an overlay that is read to its end, and the digest of what was read so far."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path, self.stream, self.sum = path, stream, hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """Raises WorkError if the file has become shorter."""
        piece = self.stream.read(size)
        if len(piece) < size:
            raise changed(self.path)
        self.sum.update(piece)
        return piece


def copy_program(script: Script, copy: Path) -> None:
    """Copy a program of an overlay, as the plan read it.  Raises WorkError."""
    shutil.copyfile(script.source, copy)
    if digest_of_file(copy) != script.digest:
        raise changed(script.source)
    copy.chmod(0o755)


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
