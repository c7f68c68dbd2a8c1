# SPDX-License-Identifier: Apache-2.0
"""Remove firmware of devices that the recipe does not list."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.root import MOST_LINKS, Root
from imagebuilder.slim.types import (
    Kind,
    SlimError,
    SlimOrder,
    Told,
    entries_below,
    place_of,
    remove,
    remove_empty,
)

FIRMWARE = "/usr/lib/firmware"
COMPRESSED = re.compile(r"\.(xz|zst)$")


def slim_firmware(root: Root, order: SlimOrder) -> Iterator[Told]:
    """Keep in each folder what the devices ask for, and the symlinks to it.

    Raises SlimError before any change if nothing would be kept.
    """
    going: list[str] = []
    for folder in order.firmware:
        top = root.resolve(f"{FIRMWARE}/{folder}")
        present = list(entries_below(root, top)) if top else []
        if not present:
            raise SlimError(
                f"{FIRMWARE}/{folder} contains no firmware",
                "remove it from `slim: firmware:` of its overlay, or correct it",
            )
        stays = find_wanted(root, present, order.wanted)
        if not stays:
            raise SlimError(
                f"no device of the recipe asks for firmware of {FIRMWARE}/{folder}",
                "list the devices under `hardware:` of the recipe, or remove the folder from "
                "`slim: firmware:`",
            )
        going.extend(name for name in present if name not in stays)
    for name in going:
        yield remove(root, name, Kind.FIRMWARE)
    for folder in order.firmware:
        remove_empty(root, f"{FIRMWARE}/{folder}")


def find_wanted(root: Root, names: Sequence[str], globs: Sequence[str]) -> set[str]:
    """The names that a glob matches, their targets, and all symlinks to any of these."""
    stays = {step for n in names if is_wanted(root, n, globs) for step in link_chain(root, n)}
    return stays | {name for name in names if root.resolve(name) in stays}


def is_wanted(root: Root, name: str, globs: Sequence[str]) -> bool:
    """Whether a glob matches the file, without the suffix of its compression."""
    top = root.resolve(FIRMWARE) or FIRMWARE
    bare = COMPRESSED.sub("", name.removeprefix(f"{top}/"))
    return any(fnmatch.fnmatchcase(bare, glob) for glob in globs)


def link_chain(root: Root, name: str) -> Iterator[str]:
    """`name`, and each symlink and the file that it leads to."""
    for _ in range(MOST_LINKS):
        yield name
        place = place_of(root, name)
        if not place.is_symlink():
            return
        target = os.fspath(Path(posixpath.dirname(name), place.readlink()))
        folder = root.resolve(posixpath.dirname(target))
        name = f"{folder}/{posixpath.basename(target)}"
        if folder is None or not root.lies(name):
            return
