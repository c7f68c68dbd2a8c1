# SPDX-License-Identifier: Apache-2.0
"""Files of a step as its digest sees them, and which of them an initrd may read.

A file of the project may change between the plan and the step that reads it, because somebody works
on it.  A layer that has the new content under the digest of the old one would be reused for ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.recipe.types import Script, TreeFile

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
