# SPDX-License-Identifier: Apache-2.0
"""Why DKMS could not build a module: the last error of its make.log, the kernel, the compiler."""

from __future__ import annotations

import re
from pathlib import Path

from imagebuilder.workspace import Workspace

TREE = "var/lib/dkms"
LOG = "make.log"
# What compilers, linkers, modpost and make say of errors; the last line that tells *what* is wrong
# goes before make's own, which only say where it gave up.
REASON = re.compile(r"\berror\b:|\bERROR: |undefined reference|No such file or directory", re.I)
GAVE_UP = re.compile(r"\*\*\* |Error \d+$|command not found")


def find_dkms_failure(tools: Workspace, kernel: str) -> str | None:
    """The reason in the make.log that DKMS has left in the tree of `tools`; None for no log."""
    logs = sorted((tools.tree / TREE).glob(f"*/*/build/{LOG}"))
    if not logs:
        return None
    log = logs[-1]
    module, version = log.relative_to(tools.tree / TREE).parts[:2]
    said = tools.ask(["gcc", "--version"], check=False)
    compiler = said.stdout.splitlines()[0] if said.status == 0 and said.stdout else "no compiler"
    return (
        f"DKMS cannot build {module} {version} for kernel {kernel} with {compiler}\n"
        f"    {last_error(log)}"
    )


def last_error(log: Path) -> str:
    """The last line of a make.log that says what is wrong, or else where make gave up."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for pattern in (REASON, GAVE_UP):
        found = [line for line in lines if pattern.search(line)]
        if found:
            return found[-1]
    return lines[-1] if lines else f"{LOG} is empty"
