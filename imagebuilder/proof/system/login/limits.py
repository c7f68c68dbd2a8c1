# SPDX-License-Identifier: Apache-2.0
"""Limits of all sessions of users, which everybody has who computes over ssh."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.numbers import size_of, whole
from imagebuilder.proof.reading.units import FOLDERS
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# The slices of all users together, and of each.
FILES = ("user.slice", "user.slice.d/*.conf", "user-.slice.d/*.conf", "user@.service.d/*.conf")
LIMIT = re.compile(
    r"^[ \t]*(?P<said>(?P<key>MemoryMax|MemoryHigh|CPUQuota|TasksMax|AllowedCPUs)\s*=\s*"
    r"(?P<value>\S+))\s*$",
    re.MULTILINE,
)
# What a program that computes may well need; shares of a node are large enough.
LEAST_MEMORY, LEAST_PERCENT, LEAST_TASKS = 16 << 30, 800, 4096


def prove_session_limits(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each file."""
    root = subject.root
    for path in (path for f in FOLDERS for name in FILES for path in root.glob(f"{f}/{name}")):
        found = [] if path in subject.shipped else list(LIMIT.finditer(root.text(path)))
        said = [match["said"] for match in found if is_low(match["key"], match["value"])]
        if said:
            what = f"what users run over ssh is limited by {' and '.join(said)}: programs "
            what += "that compute may need more"
            where = (Evidence(path, said=each) for each in said)
            yield SAY.warning(what, *where, hint="remove them, unless many users share a node")


def is_low(key: str, value: str) -> bool:
    if key == "CPUQuota":
        return whole(value.rstrip("%")) < LEAST_PERCENT if value[:-1].isdecimal() else False
    if key == "AllowedCPUs":
        return True
    least = LEAST_TASKS if key == "TasksMax" else LEAST_MEMORY
    return 0 <= size_of(value) < least
