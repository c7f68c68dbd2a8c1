# SPDX-License-Identifier: Apache-2.0
"""Files that include others, which may include them again, or go on for thousands of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

L = TypeVar("L")

MOST_LEVELS = 128  # as sudo(8) has it (MAX_SUDOERS_DEPTH)


def read_including(
    path: str, lines_of: Callable[[str], Iterable[L]], included: Callable[[L], list[str] | None]
) -> Iterator[L]:
    """The lines of a file, with those of others in the place of a line that includes them.

    `included` gives the paths that a line includes, None for another line.  Each file is read once.
    """
    seen: set[str] = set()

    def lines_in(paths: Iterable[str]) -> Iterator[L]:
        for each in paths:
            if each not in seen:
                seen.add(each)
                yield from lines_of(each)

    reading = [lines_in([path])]
    while reading:
        for line in reading[-1]:
            paths = included(line)
            if paths is None:
                yield line
            elif len(reading) <= MOST_LEVELS:
                reading.append(lines_in(paths))
                break
        else:
            reading.pop()
