# SPDX-License-Identifier: Apache-2.0
"""Lists of processors in settings of systemd and of the kernel."""

from __future__ import annotations

import re

from imagebuilder.proof.reading.numbers import whole

AFFINITY, ALLOWED = "CPUAffinity", "AllowedCPUs"
# The highest number that a kernel is built for; N in a list is that of the node.
LAST = 8191
ALL = f"0-{LAST}"
# cpu lists of kernel-parameters.txt, without groups of a range (`0-63:2/8`).
RANGE = re.compile(r"(\d+)(?:-(\d+))?(?::.*)?")


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
