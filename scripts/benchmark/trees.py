# SPDX-License-Identifier: Apache-2.0
"""A bootable result as plain files: what it takes on disk, and what differs between two of them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from imagebuilder.process import run

CHUNK = 1 << 20


def size_of(places: Sequence[Path]) -> int:
    """Bytes on disk; what several names share counts once (du(1))."""
    said = run(["du", "--summarize", "--total", "--block-size=1", "--", *places]).stdout
    return int(said.splitlines()[-1].split()[0])


def list_tree(places: Sequence[Path]) -> dict[str, str]:
    """Every path with its type, mode, owner and content.

    Times are left out: not every tool keeps them.  Files of `places` are named by their names,
    folders by what is in them.
    """
    found: dict[str, str] = {}
    for place in places:
        if place.is_dir():
            found |= {os.fspath(p.relative_to(place)): describe(p) for p in below(place)}
        else:
            found[place.name] = describe(place)
    return found


def below(folder: Path) -> Iterator[Path]:
    """Every path below a folder; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from below(Path(entry.path))


def describe(path: Path) -> str:
    """All that is compared of a path, in a line."""
    status = path.lstat()
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = os.fspath(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = digest_of(path)
    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        content = str(status.st_rdev)
    return f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid} {content}"


def digest_of(path: Path) -> str:
    """The digest of a file's content."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """The paths that two listings do not agree on."""
    return tuple(p for p in sorted({*one, *other}) if one.get(p) != other.get(p))
