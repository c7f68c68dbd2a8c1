# SPDX-License-Identifier: Apache-2.0
"""Which lines of a YAML file an entry takes, so that the others need not be touched."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imagebuilder.recipe.positions import Document, KeyPath

NOTHING = re.compile(r"\s*(#.*)?")


def find_lines(document: Document, lines: Sequence[str], path: KeyPath) -> tuple[int, int] | None:
    """First line (from 0) and the one behind the last of the key `path` with its value.

    Comments and empty lines behind it belong to what follows.  None when the key shares its line
    with something else.
    """
    key = document.keys.get(path)
    if key is None or lines[key.line - 1][: key.column - 1].strip():
        return None
    follows = [
        mark
        for other, mark in document.keys.items()
        if mark.line >= key.line and other[: len(path)] != path
    ]
    if any(mark.line == key.line for mark in follows):
        return None
    start = key.line - 1
    end = min((mark.line - 1 for mark in follows), default=len(lines))
    while end > start + 1 and NOTHING.fullmatch(lines[end - 1].rstrip("\n")):
        end -= 1
    return start, end


def insertion_line(document: Document, lines: Sequence[str], top: str) -> tuple[int, str] | None:
    """The line (from 0) behind the last entry of the mapping `top`, and the entries' margin.

    None when it has no entry or its entries are not on lines of their own.
    """
    entries = [path for path in document.keys if len(path) == 2 and path[0] == top]
    places = [find_lines(document, lines, path) for path in entries]
    if not places or None in places:
        return None
    last = document.keys[entries[-1]]
    return max(place[1] for place in places if place), " " * (last.column - 1)
