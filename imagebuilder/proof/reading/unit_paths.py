# SPDX-License-Identifier: Apache-2.0
"""Paths in settings of units, such as `-+/srv/a:/mnt/a:ro` (systemd.exec(5))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.proof.reading.units import UnitSettings

OPTIONAL = "-"  # a path that may be missing
PREFIXES = "-+"  # and + for one below the unit's own root


@dataclass(frozen=True)
class UnitPath:
    """A path of the image, and where the unit's programs see it: elsewhere if it is bound there."""

    source: str
    target: str
    is_optional: bool


def unit_paths(unit: UnitSettings, *keys: str) -> Iterator[UnitPath]:
    """The paths of some settings of a unit, without a slash at their end."""
    for word in (word for key in keys for word in unit.words(key)):
        bare = word.lstrip(PREFIXES)
        source, _, rest = bare.partition(":")
        target = rest.partition(":")[0] if rest.startswith("/") else source
        is_optional = OPTIONAL in word[: len(word) - len(bare)]
        yield UnitPath(without_slash(source), without_slash(target), is_optional)


def without_slash(path: str) -> str:
    return path.rstrip("/") or path[:1]


def is_below(path: str, folder: str) -> bool:
    """Whether a path is `folder` or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
