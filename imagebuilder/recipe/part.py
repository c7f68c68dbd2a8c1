# SPDX-License-Identifier: Apache-2.0
"""An overlay that was read, and the files in its folder that its keys name."""

from __future__ import annotations

import ast
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from imagebuilder.errors import Fault
from imagebuilder.files import plain_file, read_plain
from imagebuilder.phrases import quote, suggest
from imagebuilder.plain import is_special
from imagebuilder.recipe.model import OverlayFile
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.recipe.render import Scope

MOST_PROGRAM = 1 << 20  # bytes; Python's tree of it takes a hundred times as much


@dataclass(frozen=True)
class Part:
    """An overlay that was read; `shown` is its folder for people."""

    name: str
    folder: Path
    document: Document
    file: OverlayFile

    @property
    def shown(self) -> str:
        return self.document.shown.rpartition("/")[0]


def check_runs(scope: Scope, path: KeyPath, named: str, found: Path) -> bool:
    """Whether the kernel would run it: it is executable or has an interpreter line."""
    with plain_file(found) as stream:
        said = stream.read(2)
    if said != b"#!" and not found.stat().st_mode & stat.S_IXUSR:
        what = f"{named} is not executable and has no #! line"
        scope.fault(path, what, "start it with #!/bin/sh")
        return False
    return True


def check_requirements(part: Part, scope: Scope, written: str, found: Path) -> None:
    """A fault for each line of a requirements file that does not name an exact wheel."""
    from imagebuilder.recipe.requirements import requirement_faults  # slow, and mostly not needed

    scope.faults.extend(requirement_faults(found, f"{part.shown}/{written}"))


def check_program(part: Part, scope: Scope, path: Path) -> None:
    """A fault for a check that Python cannot compile."""
    where = f"{part.shown}/{path.relative_to(part.folder)}"
    try:
        problem = find_problem(read_plain(path, MOST_PROGRAM), path.name)
    except OSError as error:
        scope.faults.append(Fault(where, f"cannot be read: {error.strerror}"))
        return
    if problem:
        at, why = problem
        scope.faults.append(Fault(f"{where}{at}", f"not Python: {why}"))


@lru_cache(maxsize=256)  # every profile that has an overlay asks for its checks
def find_problem(program: bytes, name: str) -> tuple[str, str] | None:
    """Why it is not Python: the place, `:LINE:COLUMN` or nothing, and the words."""
    try:
        ast.parse(program, filename=name)
    except SyntaxError as error:
        at = f":{error.lineno}:{error.offset}" if error.lineno and error.offset else ""
        return at, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return "", str(error)
    return None


def find_inside(
    part: Part, scope: Scope, path: KeyPath, written: str, *, hint: str = ""
) -> Path | None:
    """The regular file of the overlay that `written` names; None, with a fault, otherwise.

    `hint` says what to do if the file is missing.
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
        beside = found.parent.iterdir() if found.parent.is_dir() else ()
        files = (p for p in beside if p.is_file() and not p.is_symlink())
        near = suggest(written, (str(path.relative_to(part.folder)) for path in files))
        shown = f"{part.shown}/{written}"
        what = f"{shown} is not a file" if is_special(found) else f"no file {shown}"
        scope.fault(path, what, hint or near)
        return None
    return found
