# SPDX-License-Identifier: Apache-2.0
"""Phrases of messages: names in quotes, lists of them, and what may have been meant."""

from __future__ import annotations

import json
from collections.abc import Iterable

LISTED = 12  # most known names listed in a hint; more would bury it


def suggest(name: str, known: Iterable[str], *, closest: bool = False) -> str:
    """A hint for a name that is not in `known`; with `closest` never the whole list."""
    import difflib  # good input needs no hint

    names = sorted(known)
    spelled = name.lower().replace("_", "-")
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(
        spelled, names, n=1
    )
    if near:
        return f"did you mean {quote(near[0])}?"
    if closest or not names or len(names) > LISTED:
        return ""
    return f"known: {', '.join(names)}"


def listing(names: Iterable[str]) -> str:
    """Names for a message: `"a", "b"`."""
    return ", ".join(quote(name) for name in names)


def list_first(names: Iterable[str], most: int, between: str = ", ") -> str:
    """The first `most` names in one line, and the number of the others: `a, b and 3 more`."""
    listed = list(names)
    more = len(listed) - most
    return between.join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def quote(text: str) -> str:
    """`text` in double quotes, on one line, cut where it is long."""
    return json.dumps(text if len(text) <= 80 else text[:79] + "…", ensure_ascii=False)
