# SPDX-License-Identifier: Apache-2.0
"""The order for slimming a root, and its results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from imagebuilder.folders import entries_below as all_below
from imagebuilder.root import Root
from imagebuilder.ui import format_size

# The prefix of a fault's line; JSON follows.
FAULT = "slim fault: "

# The fact with the bytes, in the layers below, of all removed and rewritten files.
REPLACED = "replaced-bytes"


class SlimError(Exception):
    """Slimming would break the root, or do nothing: what is wrong, and what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class Kind(StrEnum):
    CODE = "code"
    FIRMWARE = "firmware"
    MODULES = "modules"
    UNLINKED = "unlinked"


@dataclass(frozen=True)
class SlimOrder:
    """What to remove and what to keep.

    The files of the globs `code_in` keep device code for `code`; the folders `firmware` keep what
    matches the globs `wanted`, all below /usr/lib/firmware; `modules` are globs below the folder of
    `kernel`; `unlinked` globs of libraries.
    """

    code: tuple[str, ...] = ()
    code_in: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    kernel: str = ""
    unlinked: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlimChange:
    """A file that was removed or slimmed: sizes in bytes, and what stays of it in words."""

    kind: Kind
    path: str
    before: int
    after: int = 0
    stays: str = ""

    def __str__(self) -> str:
        before, after = format_size(self.before), format_size(self.after)
        if self.stays:
            return f"kept only {self.stays} in {self.path}: {before} -> {after}"
        return f"removed {self.path} ({before})"


@dataclass(frozen=True)
class Kept:
    """A file that a glob matches but that is unchanged, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"kept {self.path}: {self.why}"


@dataclass(frozen=True)
class Unmatched:
    """A glob that matches nothing, which is no fault because roots differ."""

    glob: str

    def __str__(self) -> str:
        return f"nothing matches {self.glob}"


Told = SlimChange | Kept | Unmatched


def place_of(root: Root, name: str) -> Path:
    """The path on the host of `name` itself, without following a symlink."""
    place = root.place(name)
    if place is None:
        raise FileNotFoundError(name)
    return place


def remove(root: Root, name: str, kind: Kind) -> SlimChange:
    place = place_of(root, name)
    size = place.lstat().st_size
    place.unlink()
    return SlimChange(kind, name, size)


def remove_empty(root: Root, folder: str) -> None:
    """Remove empty folders below `folder`, and itself if empty, without reporting them."""
    top = root.host(folder)
    if top is None:
        return
    folders = [Path(e.path) for e in all_below(top) if e.is_dir(follow_symlinks=False)]
    for here in (*reversed(folders), top):
        if not any(here.iterdir()):
            here.rmdir()


def entries_below(root: Root, folder: str) -> Iterator[str]:
    """Every file and symlink below a folder, in a stable order."""
    top = root.host(folder)
    if top is None or not top.is_dir():
        return
    prefix = len(os.fspath(root.path))
    for entry in all_below(top):
        if not entry.is_dir(follow_symlinks=False):
            yield entry.path[prefix:]
