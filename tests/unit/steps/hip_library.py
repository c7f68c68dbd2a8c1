# SPDX-License-Identifier: Apache-2.0
"""A shared library with a fat binary, laid out as linkers do, that ld.so loads and relocates.

    read-only  headers .hash .dynsym .dynstr .rela.dyn .rodata .hip_fatbin .eh_frame_hdr
    writable   .dynamic .hipFatBinSegment .data (one page further in memory than in the file)
    not loaded .comment .shstrtab

It exports `wrappers` and `behind` (the content of .eh_frame_hdr).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.fixtures.elf import STACK, make_bundle, make_code_object, make_hip_bundles

PAGE = 4096
BEHIND = bytes(n % 241 for n in range(5000))
RODATA = bytes(n % 239 for n in range(3000))
SHIFT = PAGE  # of the writable part
TYPES = {".hash": 5, ".dynsym": 11, ".dynstr": 3, ".rela.dyn": 4, ".dynamic": 6, ".shstrtab": 3}
TARGETS = ("gfx1030", "gfx1100", "gfx1102")


def bundle_of(number: int, targets: Sequence[str] = TARGETS) -> bytes:
    """A bundle whose code objects differ from those of the others in their length."""
    objects = {
        f"hipv4-amdgcn-amd-amdhsa--{target}": make_code_object(
            target.replace("942", "906"), 9000 + 700 * number
        )
        for target in targets
    }
    return make_bundle(objects)


@dataclass(frozen=True)
class Faults:
    """What is not as clang makes it: `magic` of the first wrapper, a pointer from elsewhere into
    the code, a symbol there, and whether the addends lie in the wrappers, too.
    """

    magic: int = 0x48495046
    stray: bool = False
    exported: bool = False
    in_place: bool = False


@dataclass
class Parts:
    """Sections with their addresses, while they are laid out one behind the other."""

    place: int
    rows: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def add(self, name: str, content: bytes, unit: int = 8) -> int:
        """Lay a section; its address."""
        self.place += -self.place % unit
        address = self.place
        self.rows[name] = (address, content)
        self.place += len(content)
        return address


def make_hip_library(bundles: Sequence[bytes] | None = None, faults: Faults = Faults()) -> bytes:
    """The library's file; without `bundles` it has three for three targets."""
    given = [bundle_of(n) for n in range(3)] if bundles is None else list(bundles)
    strings = b"\0wrappers\0behind\0code\0"
    count = 4 if faults.exported else 3
    read = Parts(64 + 56 * 4)
    chain = struct.pack(f"<{3 + count}I", 1, count, 1, 0, *range(2, count), 0)
    table_hash = read.add(".hash", chain)
    symbols = read.add(".dynsym", bytes(24 * count))
    texts = read.add(".dynstr", strings)
    rela = read.add(".rela.dyn", bytes(24 * (len(given) + faults.stray)))
    read.add(".rodata", RODATA, 16)
    code = read.add(".hip_fatbin", make_hip_bundles(*given), PAGE)
    behind = read.add(".eh_frame_hdr", BEHIND, 4)
    write = Parts(read.place + -read.place % 8 + SHIFT)
    tags = {4: table_hash, 6: symbols, 11: 24, 5: texts, 10: len(strings), 7: rela,
            8: 24 * (len(given) + faults.stray), 9: 24, 0: 0}  # fmt: skip
    dynamic = write.add(".dynamic", b"".join(struct.pack("<QQ", *row) for row in tags.items()))
    starts, length = [], 0
    for bundle in given:
        length += -length % PAGE
        starts.append(code + length)
        length += len(bundle)
    there = [start if faults.in_place else 0 for start in starts]
    magics = [faults.magic, *[0x48495046] * len(given)]
    wrappers = b"".join(
        struct.pack("<IIQQ", magic, 1, at, 0) for magic, at in zip(magics, there, strict=False)
    )
    first = write.add(".hipFatBinSegment", wrappers)
    data = write.add(".data", bytes(16))
    rows = [(first + 24 * n + 8, 8, start) for n, start in enumerate(starts)]
    rows += [(data, 8, code + 64)] if faults.stray else []
    read.rows[".rela.dyn"] = (rela, b"".join(struct.pack("<QQq", *row) for row in rows))
    numbers = {name: n for n, name in enumerate([*read.rows, *write.rows], 1)}
    named = [(1, ".hipFatBinSegment", first, len(wrappers)), (10, ".eh_frame_hdr", behind, 5000)]
    named += [(17, ".hip_fatbin", code, 8)] if faults.exported else []
    read.rows[".dynsym"] = (
        symbols,
        bytes(24)
        + b"".join(
            struct.pack("<IBBHQQ", text, 0x11, 0, numbers[name], address, size)
            for text, name, address, size in named
        ),
    )
    return assemble(read, write, dynamic)


def assemble(read: Parts, write: Parts, dynamic: int) -> bytes:
    """The file of the two parts."""
    names, body, headers = b"\0", bytearray(), [bytes(64)]
    rows: Mapping[str, tuple[int, bytes]] = read.rows | write.rows
    links = {".dynsym": 3, ".hash": 2, ".rela.dyn": 2, ".dynamic": 3}
    for name, (address, content) in [*rows.items(), (".comment", (0, b"by a test\0"))]:
        offset = len(body) if not address else address - (SHIFT if name in write.rows else 0)
        body += bytes(offset - len(body)) + content
        flags = 0 if not address else 3 if name in write.rows else 2
        size = {".dynsym": 24, ".rela.dyn": 24, ".dynamic": 16}.get(name, 0)
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", len(names), TYPES.get(name, 1), flags, address, offset,
                len(content), links.get(name, 0), 1 if name == ".dynsym" else 0, 1, size,
            )
        )  # fmt: skip
        names += name.encode() + b"\0"
    headers.append(
        struct.pack("<IIQQQQIIQQ", len(names), 3, 0, 0, len(body), len(names) + 10, 0, 0, 1, 0)
    )
    body += names + b".shstrtab\0"
    body += bytes(-len(body) % 8)
    end = write.place - SHIFT
    segments = [
        (1, 4, 0, 0, 0, read.place, read.place, PAGE),
        (1, 6, dynamic - SHIFT, dynamic, dynamic, end - dynamic + SHIFT, end - dynamic + SHIFT,
         PAGE),
        (2, 6, dynamic - SHIFT, dynamic, dynamic, 16 * 9, 16 * 9, 8),
        STACK,
    ]  # fmt: skip
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, len(body), 0, 64, 56, len(segments), 64,
        len(headers),
        len(headers) - 1,
    )  # fmt: skip
    head += b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments)
    body[: len(head)] = head
    return bytes(body) + b"".join(headers)
