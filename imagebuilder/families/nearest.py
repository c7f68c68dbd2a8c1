# SPDX-License-Identifier: Apache-2.0
"""Hints for a package that no source has."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from imagebuilder.lock.request import Request

NEAREST = 3


def mapping_hint(request: Request, word: str) -> str:
    """How to map a package's name to another distribution; "" for Debian and bases."""
    if not (request.overlay and request.elsewhere):
        return ""
    entry = f"package-names: {{{request.elsewhere}: {{{word.partition('=')[0]}: NAME}}}}"
    return f"; or map its name in the overlay: {entry}"


def nearest_names(name: str, names: Sequence[str]) -> str:
    """A hint with the names closest to `name`, or with where to find its suite."""
    near = [other for other in names if other[:1] == name[:1] and abs(len(other) - len(name)) < 6]
    close = difflib.get_close_matches(name, near, NEAREST, 0.7)
    parts = [other for other in names if name in other] if len(name) > 3 else []
    found = [*close, *sorted(parts, key=len)][:NEAREST]
    if found:
        return f"the nearest names are: {', '.join(dict.fromkeys(found))}"
    return "find its suite and component with the distribution's package search"
