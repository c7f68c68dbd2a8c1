# SPDX-License-Identifier: Apache-2.0
"""Deterministic cpio archives in the format newc, for the kernel."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An entry of a cpio archive: a file with `content`, a symlink with `link`, or by `kind`."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    owner: int = 0
    group: int = 0
    link: str = ""
    kind: int = stat.S_IFREG

    def render(self, number: int) -> bytes:
        """Its record in the kernel's format, newc (buffer-format.rst in Linux)."""
        kind = stat.S_IFLNK if self.link else self.kind
        data = self.link.encode() or self.content
        name = os.fsencode(self.path) + b"\0"
        fields = (
            number, kind | self.mode, self.owner, self.group, 1, 0, len(data),
            0, 0, 0, 0, len(name), 0,
        )  # fmt: skip
        header = b"070701" + b"".join(b"%08x" % value for value in fields)
        return padded(header + name) + padded(data)


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def complete(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` with the folders that they need, each before what is in it."""
    folders = {
        parent: Entry(parent, kind=stat.S_IFDIR, mode=0o755)
        for parent in {above for entry in entries for above in folders_above(entry.path)}
    }
    folders |= {entry.path: entry for entry in entries if entry.kind == stat.S_IFDIR}
    others = [entry for entry in entries if entry.path not in folders]
    return [*(folders[path] for path in sorted(folders)), *others]


def folders_above(path: str) -> Iterator[str]:
    """`a`, `a/b` for `a/b/c`."""
    place = path.find("/")
    while place > 0:
        yield path[:place]
        place = path.find("/", place + 1)


def render_cpio(entries: Sequence[Entry]) -> bytes:
    """An archive that the kernel unpacks after an initrd; folders come before what is in them."""
    ordered = [*complete(entries), Entry("TRAILER!!!", kind=0)]
    return b"".join(entry.render(number) for number, entry in enumerate(ordered, 1))
