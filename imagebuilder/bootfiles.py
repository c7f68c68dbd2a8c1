# SPDX-License-Identifier: Apache-2.0
"""The files that iPXE fetches to boot an image, by the names they have in images and releases."""

from __future__ import annotations

import stat
from pathlib import Path

from imagebuilder.errors import WorkError

KERNEL = "vmlinuz"
# The archives of the initrd that are not compressed.  An initrd that is all of one kind is one
# file, and that of an older image too.
EARLY = "early.img"
INITRD = "initrd.img"
# In the order in which the kernel needs them.
BOOT_FILES = (KERNEL, EARLY, INITRD)
RELEASE = "kernel-version"


def check_made(folder: Path) -> None:
    """Raise WorkError if programs of an image left anything but its boot files in `folder`.

    Root of the builder reads these files and writes others beside them: a link of theirs would lead
    to a file of the host.
    """
    for path in sorted(folder.iterdir()):
        known = path.name in (*BOOT_FILES, RELEASE)
        if not known or not stat.S_ISREG(path.lstat().st_mode):
            raise WorkError(
                f"a program of the image left {path.name!r} beside the initrd, which is not one of "
                "its boot files",
                hint="look for a dracut module that writes there: it may attack the builder",
            )
