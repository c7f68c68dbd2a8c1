# SPDX-License-Identifier: Apache-2.0
"""Kernels in files, made by Tensile for rocBLAS and hipBLASLt, one folder for all targets.

    TensileLibrary_lazy_gfx1102.dat                 names the others, opened on demand
    TensileLibrary_Type_HH_..._gfx1102.{dat,co}     solutions and their kernels
    TensileLibrary_Type_HH_..._fallback.dat         solutions for every target
    TensileLibrary_Type_HH_..._fallback_gfx1102.hsaco  and their kernels for this one

A missing kernel file is only noticed when a program multiplies matrices of that type.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imagebuilder.root import Root

BEGINS = b"TensileLibrary_"
LAZY = "TensileLibrary_lazy_"
# A string of MessagePack: its length is in the byte before, or in the lower bits of it.
STR8, FIXSTR = 0xD9, 0xA0


@dataclass(frozen=True)
class Kernels:
    """A folder of kernels for one target: the libraries in its index, and missing files."""

    folder: str
    index: str
    named: tuple[str, ...]
    missing: tuple[str, ...]


def find_kernels(root: Root, files: Sequence[str], target: str) -> Iterator[Kernels]:
    """The Tensile folders among the folders of `files`, except those with all kernels in a file."""
    for folder in dict.fromkeys(posixpath.dirname(file) for file in files):
        names = frozenset(root.names(folder))
        whole = {f"TensileLibrary_{target}.dat", "TensileLibrary.dat"} & names
        if whole or not any(name.startswith(BEGINS.decode()) for name in names):
            continue
        index = f"{LAZY}{target}.dat"
        named = tuple(names_in(root.read(f"{folder}/{index}") or b""))
        missing = [] if index in names else [index]
        missing += [what for one in named if (what := lacks(one, names, target))]
        yield Kernels(folder, index, named, tuple(missing))


def names_in(content: bytes) -> list[str]:
    """The libraries that an index names, each once.

    It is MessagePack; only the strings with this prefix matter, and they are read by their length.
    """
    found: dict[str, None] = {}
    for match in re.finditer(re.escape(BEGINS), content):
        start = match.start()
        before = content[max(start - 2, 0) : start]
        if len(before) == 2 and before[0] == STR8:
            length = before[1]
        elif before and before[-1] & 0xE0 == FIXSTR:
            length = before[-1] & 0x1F
        else:
            continue
        found[content[start : start + length].decode(errors="replace")] = None
    return list(found)


def lacks(name: str, names: frozenset[str], target: str) -> str:
    """The file that the library `name` lacks, "" if it is complete."""
    if f"{name}.dat" not in names:
        return f"{name}.dat"
    if {f"{name}.co", f"{name}.hsaco"} & names:
        return ""
    # The target may have features: gfx90a-xnack-.
    begins = f"{name}_{target}"
    if any(one.startswith(begins) and one.endswith((".hsaco", ".co")) for one in names):
        return ""
    return f"{begins}.hsaco" if name.endswith("fallback") else f"{name}.co"
