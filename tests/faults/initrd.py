# SPDX-License-Identifier: Apache-2.0
"""An initrd taken apart and put together again with something missing or changed."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from pathlib import Path

from zstandard import ZstdCompressor, ZstdDecompressor

from imagebuilder.cpio import padded

MAGIC = b"070701"
HEADER = 110
TRAILER = "TRAILER!!!"
Entries = list[tuple[bytes, str, bytes]]  # 13 fields in hexadecimal, name, content


def parse(data: bytes) -> tuple[Entries, int]:
    """The entries of the archive that `data` begins with, and where it ends."""
    found: Entries = []
    at = 0
    while True:
        head = data[at : at + HEADER]
        if not head.startswith(MAGIC):
            raise ValueError("not a cpio archive in the format newc")
        size, length = int(head[54:62], 16), int(head[94:102], 16)
        name = data[at + HEADER : at + HEADER + length - 1].decode()
        begin = at + len(padded(head + bytes(length)))
        at = begin + len(padded(bytes(size)))
        if name == TRAILER:
            break
        found.append((head, name, data[begin : begin + size]))
    while data[at : at + 1] == b"\0":
        at += 1
    return found, at


def render(entries: Entries) -> bytes:
    """The archive with these entries."""
    trailer = MAGIC + b"%08x" % 0 * 11 + b"%08x" % (len(TRAILER) + 1) + b"%08x" % 0
    parts = []
    for head, name, content in [*entries, (trailer, TRAILER, b"")]:
        path = name.encode() + b"\0"
        sizes = head[:54] + b"%08x" % len(content) + head[62:94] + b"%08x" % len(path) + head[102:]
        parts += [padded(sizes + path), padded(content)]
    return b"".join(parts)


def change(initrd: Path, result: Path, changing: Callable[[Entries], Entries]) -> None:
    """Write to `result` what `changing` makes of every archive in `initrd`.

    What is not compressed, the processor's microcode and what is compressed by itself, comes first.
    """
    data, changed = initrd.read_bytes(), b""
    while data.startswith(MAGIC):
        entries, length = parse(data)
        changed += aligned(render(changing(entries)))
        data = data[length:]
    if data:
        # What follows the frame is the padding to a multiple of four.
        plain = ZstdDecompressor().decompressobj().decompress(data)
        packed = ZstdCompressor(level=1).compress(render(changing(parse(plain)[0])))
        changed += padded(packed)
    result.write_bytes(changed)


def aligned(data: bytes) -> bytes:
    """Up to the next block, as cpio(1) writes archives."""
    return data + bytes(-len(data) % 512)


def without(pattern: str) -> Callable[[Entries], Entries]:
    """Leaves out what fits a pattern of the shell."""
    return lambda entries: [one for one in entries if not fnmatch.fnmatch(one[1], pattern)]


def replacing(old: str, new: str, pattern: str = "*") -> Callable[[Entries], Entries]:
    """Replaces what a regular expression finds in the files whose names fit a pattern."""
    found = re.compile(old.encode())
    return lambda entries: [
        (head, name, found.sub(lambda _: new.encode(), content))
        if fnmatch.fnmatch(name, pattern)
        else (head, name, content)
        for head, name, content in entries
    ]


def renaming(old: str, new: str) -> Callable[[Entries], Entries]:
    """Changes a part of every name."""
    return lambda entries: [(head, name.replace(old, new), data) for head, name, data in entries]


def adding(name: str, content: str) -> Callable[[Entries], Entries]:
    """Adds a file for everybody to read to the archive that has /init."""

    def add(entries: Entries) -> Entries:
        if not any(each == "init" for _, each, _ in entries):
            return entries
        head = MAGIC + b"%08x" % 0 + b"%08x" % 0o100644 + b"%08x" % 0 * 2 + b"%08x" % 1
        return [*entries, (head.ljust(HEADER, b"0"), name, content.encode())]

    return add


def with_mode(pattern: str, mode: int) -> Callable[[Entries], Entries]:
    """Changes the permissions of the files whose names fit a pattern."""
    return lambda entries: [
        (head[:14] + b"%08x" % (int(head[14:22], 16) & ~0o7777 | mode) + head[22:], name, content)
        if fnmatch.fnmatch(name, pattern)
        else (head, name, content)
        for head, name, content in entries
    ]
