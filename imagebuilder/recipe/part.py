# SPDX-License-Identifier: Apache-2.0
"""An overlay that was read, and the files in its folder that its keys name."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import Fault
from imagebuilder.recipe.model import OverlayFile
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.validate import quote

# Requirements without a hash that are told one by one: a whole file of them is one mistake.
MOST_BARE = 3


@dataclass(frozen=True)
class Part:
    """An overlay that was read: its name, folder, document and model."""

    name: str
    folder: Path
    document: Document
    file: OverlayFile

    @property
    def shown(self) -> str:
        """The folder's name for people."""
        return self.document.shown.rpartition("/")[0]


def check_runs(scope: Scope, path: KeyPath, named: str, found: Path) -> bool:
    """Whether the kernel would run it: it is executable or says with what to run it."""
    with found.open("rb") as stream:
        said = stream.read(2)
    if said != b"#!" and not found.stat().st_mode & stat.S_IXUSR:
        what = f"{named} is not executable and has no #! line"
        scope.fault(path, what, "start it with #!/bin/sh")
        return False
    return True


def requirement_faults(path: Path, shown: str) -> Iterator[Fault]:
    """What keeps a requirements file from naming exact wheels."""
    hint = "make it with: uv pip compile --generate-hashes, or pip-compile --generate-hashes"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield Fault(shown, "is not UTF-8 text")
        return
    requirements = list(requirement_lines(text))
    if not requirements:
        yield Fault(shown, "names no package")
    bare = [number for number, line in requirements if is_bare(line)]
    for number, line in requirements:
        if re.match(r"(-[rce]\b|--(requirement|constraint|editable)\b)", line):
            yield Fault(f"{shown}:{number}", f"{quote(line)} brings in what has no digest", hint)
        elif number in bare[:MOST_BARE]:
            name = re.split(r"[\s;=<>!~\[@]", line)[0]
            yield Fault(f"{shown}:{number}", f"{quote(name)} has no --hash=sha256:", hint)
    if rest := bare[MOST_BARE:]:
        yield Fault(f"{shown}:{rest[0]}", f"{len(rest)} more have no --hash=sha256:", hint)


def is_bare(line: str) -> bool:
    """Whether a line is a requirement without a hash."""
    return not line.startswith("-") and "--hash=sha256:" not in line


def requirement_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each requirement or option with the line it starts in, continuation lines joined."""
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        start = start if joined else number
        joined = f"{joined} {line.removesuffix(chr(92)).strip()}".strip()
        if joined and not line.endswith("\\"):
            yield start, joined
            joined = ""
    if joined:
        yield start, joined


def find_inside(
    part: Part, scope: Scope, path: KeyPath, written: str, *, hint: str = ""
) -> Path | None:
    """The regular file of the overlay that `written` names; None, with a fault, otherwise.

    `hint` says what to do when there is no such file.
    """
    if written.startswith("/") or ".." in written.split("/"):
        scope.fault(path, f"{quote(written)} leaves the overlay", "name a path below the overlay")
        return None
    found = part.folder / written
    try:
        inside, is_file = found.resolve().is_relative_to(part.folder.resolve()), found.is_file()
    except (OSError, RuntimeError):  # a name too long, a symlink loop
        inside, is_file = True, False
    if not inside:
        scope.fault(path, f"{quote(written)} is a symlink that leaves the overlay")
        return None
    if not is_file:
        scope.fault(path, f"no file {part.shown}/{written}", hint)
        return None
    return found
