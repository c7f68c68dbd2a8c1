# SPDX-License-Identifier: Apache-2.0
"""Write, find, stop and remove our systemd units below a root."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.environment import base_environment
from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import place_file
from imagebuilder.process import Word, run
from imagebuilder.rights import check_writable
from imagebuilder.untrusted import fit

UNITS = Path("etc/systemd/system")
RUNNING = Path("/run/systemd/system")  # sd_booted(3)
BARE = re.compile(r"[A-Za-z0-9_@+=:,./-]+")  # a word that needs no quotes
NO_LINE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # controls, and bytes that are no UTF-8


@dataclass(frozen=True)
class UnitFile:
    """A file for the system: its path below the root, its text and its purpose.

    `starts` is whether a person enables it: a unit that a path or timer starts is not enabled.
    """

    path: Path
    text: str
    why: str
    starts: bool = True


def place_units(root: Path, units: Sequence[UnitFile]) -> list[str]:
    """Write missing and changed units; a line about each.  Raises RootError and WorkError."""
    check_writable(root / UNITS)
    return [told(root, unit, changed=place_unit(root, unit)) for unit in units]


def place_unit(root: Path, unit: UnitFile) -> bool:
    """Write one file; returns whether that was needed."""
    place = root / unit.path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return place_file(place, unit.text.encode())
    except OSError as error:
        raise WorkError(f"cannot be written: {error.strerror}", where=os.fspath(place)) from error


def told(root: Path, unit: UnitFile, *, changed: bool) -> str:
    return f"{'wrote' if changed else 'unchanged':<10} {root / unit.path}: {unit.why}"


def find_units(root: Path, command: str) -> set[Path]:
    """Every unit below a root that `imagebuilder COMMAND --install` made."""
    return {path for path in (root / UNITS).glob("imagebuilder-*") if is_ours(path, command)}


def is_ours(path: Path, command: str) -> bool:
    return path.is_file() and path.read_text().startswith(f"# Made by imagebuilder {command}")


def exec_line(argv: Sequence[Word]) -> str:
    """A command in the form of systemd: the program with its path, `%` and `$` doubled.

    Raises InputError for a word that no unit can have.
    """
    program = shutil.which(argv[0], path=base_environment()["PATH"]) or os.fspath(argv[0])
    words = (os.fspath(word) for word in (program, *argv[1:]))
    line = " ".join(word if BARE.fullmatch(word) else quoted(word) for word in words)
    return line.replace("$", "$$")


def environment_line(name: str, value: str) -> str:
    """A variable in the form of Environment= (systemd.exec(5)): quoted, without specifiers.

    Raises InputError for a value that no unit can have.
    """
    return quoted(f"{name}={value}")


def quoted(word: str) -> str:
    """A word in the form of systemd.syntax(7), whose quotes are not those of a shell."""
    escaped = unit_text(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unit_text(text: str) -> str:
    """Text for a setting of a unit, without specifiers.

    Raises InputError for text that would end the line: what follows would be another setting.
    """
    if NO_LINE.search(text):
        hint = "use a name or value without control characters"
        what = "contains characters that a unit of systemd cannot have"
        raise InputError(what, where=fit(text), hint=hint)
    return text.replace("%", "%%")


def is_live(root: Path) -> bool:
    """Whether the running systemd uses the units below a root."""
    return root.absolute() == Path("/") and RUNNING.is_dir()


def remove_units(root: Path, files: Collection[Path], *, live: bool) -> list[str]:
    """Remove our files; on a `live` system, stop and disable the units among them first.

    Returns a line about each.  Raises RootError, and WorkError before anything is removed if a unit
    cannot be stopped.
    """
    units = sorted(path.name for path in files if path.parent == root / UNITS)
    lines: list[str] = []
    if files:
        check_writable(root / UNITS)
    # Instances of templates, such as roll-outs, continue.
    stopped = [name for name in units if "@." not in name]
    if live and stopped:
        # systemd cannot stop units that it has never loaded.
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "stop", *stopped])
        run(["systemctl", "--quiet", "disable", *units], check=False)  # not all can be enabled
        lines = [f"stopped    {name}" for name in stopped]
    for path in sorted(files):
        path.unlink()
        lines.append(f"removed    {path}")
        if path.parent.suffix == ".d" and path.parent.parent == root / UNITS:
            remove_empty(path.parent)
    if live:
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "reset-failed", *units], check=False)  # not listed any more
    return lines


def remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
