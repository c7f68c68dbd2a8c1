# SPDX-License-Identifier: Apache-2.0
"""Folders that are made when a node boots: by systemd for a unit, and by systemd-tmpfiles."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.tmpfiles import read_tmpfiles
from imagebuilder.proof.subject import Subject

# Folders that systemd makes before a service starts, and where.
MADE = {
    "RuntimeDirectory": "/run",
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
    "ConfigurationDirectory": "/etc",
}
# Kinds of lines of tmpfiles.d(5) that make the path.
MAKES = re.compile(r"[dDqQvfFCpLcb]")


def made_by(unit: LoadedUnit) -> Iterator[str]:
    """The folders that systemd makes for a unit, which belong to its account."""
    for key, top in MADE.items():
        yield from (f"{top}/{word.partition(':')[0]}" for word in unit.words(key))


def made_by_tmpfiles(subject: Subject) -> set[str]:
    """The paths that systemd-tmpfiles makes at boot."""
    return {line.path.rstrip("/") for line in read_tmpfiles(subject) if MAKES.match(line.kind)}
