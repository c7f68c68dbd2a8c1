# SPDX-License-Identifier: Apache-2.0
"""Numbers in texts of an image, of which nobody knows how long they are, and lists of them."""

from __future__ import annotations

import re

# More digits than any number of the kernel has; Python's int() raises ValueError for 4,300.
MOST_DIGITS = 24


# parse_size() of systemd: a fraction is allowed, and what is written after K and M is not.
SIZE = re.compile(r"(?P<count>\d{1,24})(?P<part>\.\d{1,24})? *(?P<unit>[BKMGTPE]?)")
UNITS = {unit: 10 * power for power, unit in enumerate(("", "K", "M", "G", "T", "P", "E"))}
AFFINITY, ALLOWED = "CPUAffinity", "AllowedCPUs"
# The highest number that a kernel is built for; N in a list is that of the node.
LAST = 8191
ALL = f"0-{LAST}"
# cpu lists of kernel-parameters.txt, without groups of a range (`0-63:2/8`).
RANGE = re.compile(r"(\d+)(?:-(\d+))?(?::.*)?")


def size_of(text: str) -> int:
    """The bytes of a size in settings of systemd, such as 512M or 1.5G; -1 for other texts."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        return -1
    factor = 1 << UNITS[found["unit"].rstrip("B")]
    return whole(found["count"]) * factor + int(float(found["part"] or 0) * factor)


def whole(text: str) -> int:
    """The number that digits are, -1 for other texts; one that is too long is very large."""
    return int(text.lstrip("0")[:MOST_DIGITS] or "0") if text.isdecimal() else -1


def processors(text: str) -> frozenset[int]:
    """The numbers in a list such as `0,2-5`, `2-N` or `all`; words that are none are ignored."""
    words = re.sub(r"\bN\b", str(LAST), text.replace("all", ALL)).replace(",", " ").split()
    ranges = (match for word in words if (match := RANGE.fullmatch(word)))
    spans = {(whole(r[1]), min(whole(r[2] or r[1]), LAST)) for r in ranges}
    found: set[int] = set()
    at = 0  # all that a list names below this is found
    for first, last in sorted(spans):
        found.update(range(max(first, at), last + 1))
        at = max(at, last + 1)
    return frozenset(found)
