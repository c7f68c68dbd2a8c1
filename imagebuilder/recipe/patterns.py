# SPDX-License-Identifier: Apache-2.0
"""Match values with the regular expressions of overlays, some of which would never come to an end.

Each of `(a+)+$` and `(a|a)*$` takes twice as long for every character more.  One whose repetitions
cannot get in each other's way is matched at once, another in a process that can be ended.
"""

from __future__ import annotations

import re
from functools import lru_cache

from imagebuilder.apart import run_apart
from imagebuilder.errors import WorkError
from imagebuilder.recipe.validate import quote

CPU_SECONDS = 5
# A character or set, the start of a group, or a repetition and whether it is that of a group.
PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|(?P<of_group>\)?)(?P<repeats>[*+?{])", re.S
)


@lru_cache(maxsize=256)  # a default is a value too, and many profiles have the same overlays
def pattern_problem(pattern: str, values: tuple[str, ...]) -> str:
    """Which of the values does not match the whole pattern; "" if all do."""

    def find(_: object = None) -> list[str]:
        matches = re.compile(pattern).fullmatch
        return [value for value in values if not matches(value)][:1]

    try:
        name = f"matching with {quote(pattern)}"
        wrong = find() if is_simple(pattern) else run_apart(name, find, cpu_seconds=CPU_SECONDS)
    except WorkError as error:
        return error.faults[0].what
    return f"{quote(wrong[0])} does not match {pattern}" if wrong else ""


def is_simple(pattern: str) -> bool:
    """Whether nothing is repeated but one character or set, so that matching is soon done."""
    found = [part for part in PARTS.finditer(pattern) if part["repeats"]]
    return len(found) < 2 and not any(part["of_group"] for part in found)
