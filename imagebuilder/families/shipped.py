# SPDX-License-Identifier: Apache-2.0
"""What packages ship, according to the package database of a root."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from imagebuilder.limited import read_limited


class RootFiles(Protocol):
    """A root that is read from outside; paths are absolute in it."""

    def names(self, folder: str) -> Sequence[str]:
        """The names in a folder, sorted; empty if it is not a folder."""

    def host(self, name: str) -> Path | None:
        """The path on this host of the file that `name` leads to, None if missing."""

    def resolve(self, name: str) -> str | None:
        """The path that `name` leads to with symlinks followed, None if missing."""


class ChecksumKind(StrEnum):
    """The algorithm, by its name in hashlib."""

    MD5 = "md5"
    SHA256 = "sha256"


# Named tuples, because a root has many thousands of both: they are made in a third of the time.
class Checksum(NamedTuple):
    """Of a file's content; `value` is in hex.  MD5 detects damage, but not tampering."""

    kind: ChecksumKind
    value: str

    def is_of(self, path: Path) -> bool:
        """Whether the file at `path` has this content.  Raises OSError."""
        with path.open("rb") as stream:
            found = hashlib.file_digest(
                stream, lambda: hashlib.new(self.kind, usedforsecurity=False)
            )
        return found.hexdigest() == self.value


class ShippedFile(NamedTuple):
    """A path that a package ships: a file, a folder or a link.

    `package` is its name in the lock.  `checksum` is None if it is not a file, or if the package
    recorded none.  A `config` file is one that people may edit.
    """

    package: str
    checksum: Checksum | None = None
    config: bool = False


def checksums_of(
    shipped: Mapping[str, ShippedFile], is_meant: Callable[[str], bool]
) -> dict[str, Checksum]:
    """The checksums of the packages whose names `is_meant` accepts, by path."""
    return {
        path: file.checksum
        for path, file in shipped.items()
        if file.checksum and is_meant(file.package)
    }


def places_in(root: RootFiles) -> Callable[[str], str]:
    """A function to the real path of a package's path: /lib/x is /usr/lib/x on a merged root."""
    top = cache(lambda name: root.resolve(f"/{name}") or f"/{name}")

    def place(path: str) -> str:
        first, slash, rest = path.removeprefix("/").partition("/")
        return f"{top(first)}/{rest}" if slash else path

    return place


def text_of(root: RootFiles, name: str) -> str:
    """The text of a record, "" if missing.  Raises WorkError if it is too large.

    Names of files in it are spelt as the builder's locale spells those of the root.
    """
    place = root.host(name)
    content = read_limited(place, name) if place else None
    return (content or b"").decode(sys.getfilesystemencoding(), errors="replace")
