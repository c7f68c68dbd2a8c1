# SPDX-License-Identifier: Apache-2.0
"""Files that declarative keys of an overlay stand for, and which files an initrd may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imagebuilder.digest import Json, digest_of_bytes
from imagebuilder.recipe.types import Overlay, TreeFile

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


def text_file(target: str, text: str) -> TreeFile:
    """A root-owned 0644 file."""
    content = text.encode()
    return TreeFile(target=target, digest=digest_of_bytes(content), mode=0o644, content=content)


def generated_files(overlay: Overlay) -> tuple[TreeFile, ...]:
    """modules-load.d(5), modprobe.d(5) and sysctl.d(5) files of `modules:` and `sysctl:`."""
    head = f"# overlay {overlay.name}\n"
    modules = overlay.modules
    found: list[TreeFile] = []
    if modules.load:
        text = head + "".join(f"{name}\n" for name in modules.load)
        found.append(text_file(f"/etc/modules-load.d/{overlay.name}.conf", text))
    if modules.blacklist or modules.options:
        text = head + "".join(f"blacklist {name}\n" for name in modules.blacklist)
        text += "".join(f"options {name} {words}\n" for name, words in modules.options)
        found.append(text_file(f"/etc/modprobe.d/{overlay.name}.conf", text))
    if overlay.sysctl:
        text = head + "".join(f"{key} = {value}\n" for key, value in overlay.sysctl)
        found.append(text_file(f"/etc/sysctl.d/60-{overlay.name}.conf", text))
    return tuple(found)


def files_input(files: Sequence[TreeFile]) -> Mapping[str, Json]:
    """Files as a digest sees them."""
    return {
        f.target: f"{f.mode:04o} {f.owner}:{f.group} "
        + (f"-> {f.link}" if f.link is not None else f.digest)
        for f in files
    }
