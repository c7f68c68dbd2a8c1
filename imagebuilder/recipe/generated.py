# SPDX-License-Identifier: Apache-2.0
"""Files that declarative keys of an overlay stand for."""

from __future__ import annotations

import posixpath

from imagebuilder.digest import digest_of_bytes
from imagebuilder.recipe.types import Overlay, TreeFile

LOAD, OPTIONS, SYSCTL = "/etc/modules-load.d", "/etc/modprobe.d", "/etc/sysctl.d"
# The key of each file, by its folder.
KEYS = {LOAD: "modules", OPTIONS: "modules", SYSCTL: "sysctl"}


def key_of(target: str) -> str:
    """The key that stands for a file which no overlay has, "" for none."""
    return KEYS.get(posixpath.dirname(target), "")


def text_file(target: str, text: str) -> TreeFile:
    """A root-owned 0644 file."""
    content = text.encode()
    return TreeFile(target=target, digest=digest_of_bytes(content), mode=0o644, content=content)


def all_files(overlay: Overlay) -> tuple[TreeFile, ...]:
    """The files of an overlay, with those that its keys stand for."""
    return (*overlay.files, *generated_files(overlay))


def generated_files(overlay: Overlay) -> tuple[TreeFile, ...]:
    """modules-load.d(5), modprobe.d(5) and sysctl.d(5) files of `modules:` and `sysctl:`."""
    head = f"# overlay {overlay.name}\n"
    modules = overlay.modules
    found: list[TreeFile] = []
    if modules.load:
        text = head + "".join(f"{name}\n" for name in modules.load)
        found.append(text_file(f"{LOAD}/{overlay.name}.conf", text))
    if modules.blacklist or modules.options:
        text = head + "".join(f"blacklist {name}\n" for name in modules.blacklist)
        text += "".join(f"options {name} {words}\n" for name, words in modules.options)
        found.append(text_file(f"{OPTIONS}/{overlay.name}.conf", text))
    if overlay.sysctl:
        text = head + "".join(f"{key} = {value}\n" for key, value in overlay.sysctl)
        found.append(text_file(f"{SYSCTL}/60-{overlay.name}.conf", text))
    return tuple(found)
