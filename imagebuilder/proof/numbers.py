# SPDX-License-Identifier: Apache-2.0
"""Numbers in texts of an image, of which nobody knows how long they are."""

from __future__ import annotations

# More digits than any number of the kernel has; Python's int() raises ValueError for 4,300.
MOST_DIGITS = 24


def whole(text: str) -> int:
    """The number that digits are, -1 for other texts; one that is too long is very large."""
    return int(text.lstrip("0")[:MOST_DIGITS] or "0") if text.isdecimal() else -1
