# SPDX-License-Identifier: Apache-2.0
"""Python bytecode that stays valid without modification times, which the store does not keep.

PEP 552: with SOURCE_DATE_EPOCH set, compilers write hash-based `.pyc` files that are checked
against their source at every import.  Roots are immutable, so the check is switched off
("unchecked-hash"): the flags word at offset 4 goes from 3 to 1.
"""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.store.upper import walk
from imagebuilder.workspace import Workspace

CHECKED, UNCHECKED = (3).to_bytes(4, "little"), (1).to_bytes(4, "little")


def run_uncheck(workspace: Workspace, *, interpreter: str = "/usr/bin/python3") -> None:
    """Make every `.pyc` that this step wrote unchecked-hash."""
    folders = sorted({f"/{os.fspath(p.parent.parent)}" for p in uncheck(workspace.tree)})
    if folders:  # their sources (not those below) are compiled again
        workspace.run(
            [interpreter, "-m", "compileall", "-q", "-l", "-f",
             "--invalidation-mode", "unchecked-hash", *folders],
            env={"PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip


def uncheck(tree: Path) -> list[Path]:
    """Switch checked files below `tree` to unchecked; returns those that go by time instead."""
    by_time: list[Path] = []
    for path, _ in walk(tree):
        if path.suffix != ".pyc" or path.is_symlink() or not path.is_file():
            continue
        with path.open("r+b") as stream:
            flags = stream.read(8)[4:]
            if flags == CHECKED:
                stream.seek(4)
                stream.write(UNCHECKED)
            elif flags != UNCHECKED and path.parent.name == "__pycache__":
                by_time.append(path.relative_to(tree))
    return by_time
