# SPDX-License-Identifier: Apache-2.0
"""The files that iPXE fetches to boot an image, by the names they have in images and releases."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.files import plain_file

KERNEL = "vmlinuz"
# The archives of the initrd that are not compressed.  An initrd that is all of one kind is one
# file, and that of an older image too.
EARLY = "early.img"
INITRD = "initrd.img"
# In the order in which the kernel needs them.
BOOT_FILES = (KERNEL, EARLY, INITRD)
RELEASE = "kernel-version"
# As uname(2) has it; it becomes a part of paths and of commands.
RELEASES = re.compile(rb"[0-9][0-9A-Za-z.+~_-]{0,63}")
# The largest file that a node could boot: the kernel unpacks no more, and no firmware loads it.
MOST = 4 << 30
# The beginning of a word of a script's line that iPXE does not pass on as it is (its
# src/core/exec.c): it expands `${`, ends the command at an operator, and `#` begins a comment.
CHANGED_BY_IPXE = r"#|(;|&&|\|\|)$|\S*\$\{"


def check_made(folder: Path) -> None:
    """Raise WorkError if programs of an image left anything but its boot files in `folder`, or one
    that is too large.

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
        if path.lstat().st_size > MOST:
            raise WorkError(
                f"a program of the image made {path.name!r} of {path.lstat().st_size} bytes, and "
                f"nodes boot files of at most {MOST >> 30} GiB",
                hint="look for a dracut module that adds to it, or remove files from the initrd",
            )


def read_release(folder: Path) -> str:
    """The kernel's release, which a program of the image wrote.  Raises WorkError."""
    try:
        with plain_file(folder / RELEASE, follow=False) as stream:
            said = stream.read(128).strip()
    except OSError as error:
        raise WorkError(f"the image's kernel has no release: {error}") from error
    if not RELEASES.fullmatch(said):
        what = f"the image's kernel has no release that uname(1) could say: {said!r}"
        raise WorkError(what, hint=f"look for a dracut module that writes {RELEASE}")
    return said.decode("ascii")


def is_changed_by_ipxe(word: str) -> bool:
    """Whether iPXE does not pass a word of a line of a script on as it is."""
    return re.match(CHANGED_BY_IPXE, word) is not None
