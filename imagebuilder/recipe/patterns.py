# SPDX-License-Identifier: Apache-2.0
"""Match values with the regular expressions of overlays, some of which would never come to an end.

Each of `(a+)+$` and `(a|a)*$` takes twice as long for every character more.  One with few ways to
match is tried at once, another in a process that can be ended.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import inf

from imagebuilder.apart import run_apart
from imagebuilder.errors import WorkError
from imagebuilder.phrases import quote

CPU_SECONDS = 5
MOST_WAYS = 1_000_000
# A character or set, the start of a group, an alternative, or a repetition and whether it is that
# of a group.
PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)|\(\?|(?P<or>\|)|(?P<of_group>\)?)"
    r"(?P<repeats>[*+?]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})",
    re.S,
)


@lru_cache(maxsize=256)  # a default is a value too, and many profiles have the same overlays
def pattern_problem(pattern: str, values: tuple[str, ...]) -> str:
    """Which of the values does not match the whole pattern; "" if all do."""

    def find(_: object = None) -> list[str]:
        matches = re.compile(pattern).fullmatch
        return [value for value in values if not matches(value)][:1]

    try:
        name = f"matching with {quote(pattern)}"
        few = ways(pattern, max(map(len, values), default=0)) <= MOST_WAYS
        wrong = find() if few else run_apart(name, find, cpu_seconds=CPU_SECONDS)
    except WorkError as error:
        return error.faults[0].what
    return f"{quote(wrong[0])} does not match {pattern}" if wrong else ""


def ways(pattern: str, length: int) -> float:
    """At most so many ways there are to match that many characters, each of which may be tried.

    Infinite for a group that is repeated without end.
    """
    found = 1.0
    for part in PARTS.finditer(pattern):
        if part["or"]:
            found *= 2
        elif part["repeats"]:
            least, most = bounds(part, length)
            found *= most - least + 1
            if part["of_group"]:
                found = found**most if part["repeats"][0] not in "*+" and most < 10 else inf
    return found


def bounds(part: re.Match[str], length: int) -> tuple[int, int]:
    """How often a part is repeated at least and at most."""
    if part["repeats"] in ("*", "+", "?"):
        return 0, 1 if part["repeats"] == "?" else length
    # As many digits as there can be characters.
    least = min(int(part["least"][:9] or 0), length)
    most = int(part["most"][:9]) if part["most"] else length if part["comma"] else least
    return least, max(least, min(most, length))
