# SPDX-License-Identifier: Apache-2.0
"""Find the lines of an entry in a YAML file, so that the others need not be changed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imagebuilder.recipe.positions import Document, KeyPath

NOTHING = re.compile(r"\s*(#.*)?")


def find_lines(document: Document, lines: Sequence[str], path: KeyPath) -> tuple[int, int] | None:
    """The first line (from 0) of the key `path` with its value, and the line after its last one.

    Comments and empty lines after it belong to the next key.  None if the key shares its line with
    another one.
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
    """The line (from 0) after the last entry of the mapping `top`, and the entries' margin.

    None if it has no entries or they do not have separate lines.
    """
    entries = [path for path in document.keys if len(path) == 2 and path[0] == top]
    places = [find_lines(document, lines, path) for path in entries]
    if not places or None in places:
        return None
    last = document.keys[entries[-1]]
    return max(place[1] for place in places if place), " " * (last.column - 1)
