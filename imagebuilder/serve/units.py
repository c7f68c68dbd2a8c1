# SPDX-License-Identifier: Apache-2.0
"""systemd units of ours below a root: written when they differ, found again, removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.nodes.place import place_file
from imagebuilder.process import Word, base_environment, paste

UNITS = Path("etc/systemd/system")


@dataclass(frozen=True)
class Unit:
    """A file for the system: where (below the root), what it says, and why it is there.

    `starts` is whether a person enables it: what a path or timer starts is not enabled by itself.
    """

    path: Path
    text: str
    why: str
    starts: bool = True


def place_units(root: Path, units: Sequence[Unit]) -> list[str]:
    """Write what is not there or differs; a line about each.  Raises WorkError."""
    return [told(root, unit, changed=place_unit(root, unit)) for unit in units]


def place_unit(root: Path, unit: Unit) -> bool:
    """Write one file; whether that was needed."""
    place = root / unit.path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return place_file(place, unit.text.encode())
    except OSError as error:
        raise WorkError(f"cannot be written: {error.strerror}", where=os.fspath(place)) from error


def told(root: Path, unit: Unit, *, changed: bool) -> str:
    """The line about one file."""
    return f"{'wrote' if changed else 'unchanged':<10} {root / unit.path}: {unit.why}"


def find_units(root: Path, command: str) -> set[Path]:
    """Every unit below a root that `imagebuilder COMMAND --install` made."""
    return {path for path in (root / UNITS).glob("imagebuilder-*") if is_ours(path, command)}


def is_ours(path: Path, command: str) -> bool:
    """Whether a command of ours wrote a file."""
    return path.is_file() and path.read_text().startswith(f"# Made by imagebuilder {command}")


def exec_line(argv: Sequence[Word]) -> str:
    """A command as systemd wants it: the program by its path, `%` and `$` doubled."""
    program = shutil.which(argv[0], path=base_environment()["PATH"]) or os.fspath(argv[0])
    return paste([program, *argv[1:]]).replace("%", "%%").replace("$", "$$")
