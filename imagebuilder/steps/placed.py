# SPDX-License-Identifier: Apache-2.0
"""Files of a step as its digest sees them, and which of them an initrd may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imagebuilder.digest import Json
from imagebuilder.recipe.types import TreeFile

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
