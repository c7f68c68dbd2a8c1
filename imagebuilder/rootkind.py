# SPDX-License-Identifier: Apache-2.0
"""How a node gets its root: the kinds, and which packed file of a release each of them needs.

nfs             the tree, over NFS
nfs-squashfs    root.squashfs, mounted over NFS
http            root.squashfs, fetched into memory
http-erofs      root.erofs, fetched into memory
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, get_args

RootKind = Literal["nfs", "nfs-squashfs", "http", "http-erofs"]
KINDS: tuple[str, ...] = get_args(RootKind)


class Format(StrEnum):
    SQUASHFS = "squashfs"
    EROFS = "erofs"


# The root of kinds that are not in it is a tree.
FORMAT_OF: Mapping[str, Format] = {
    "nfs-squashfs": Format.SQUASHFS,
    "http": Format.SQUASHFS,
    "http-erofs": Format.EROFS,
}
IN_MEMORY = frozenset(("http", "http-erofs"))


def name_of(packed: Format) -> str:
    return f"root.{packed}"


def packed_file(kind: str) -> str:
    """The file a root of this kind is, "" for a tree."""
    return name_of(FORMAT_OF[kind]) if kind in FORMAT_OF else ""
