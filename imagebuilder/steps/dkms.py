# SPDX-License-Identifier: Apache-2.0
"""Why DKMS could not build a module: the last error of its make.log, the kernel, the compiler."""

from __future__ import annotations

import re
from pathlib import Path

from imagebuilder.folders import matching
from imagebuilder.steps.step import StepWorkspace

TREE = "var/lib/dkms"
LOG = "make.log"
# What compilers, linkers, modpost and make say of errors; the last line that tells *what* is wrong
# goes before make's own, which only say where it gave up.
REASON = re.compile(r"\berror\b:|\bERROR: |undefined reference|No such file or directory", re.I)
GAVE_UP = re.compile(r"\*\*\* |Error \d+$|command not found")
# What such a line usually means, in the words of a person who can change the recipe.
TOO_NEW = (
    "the driver does not support this kernel: choose a newer driver, or an older kernel (`kernel:` "
    "of the recipe)"
)
CAUSES = (
    (
        re.compile(r"autoconf\.h|[Kk]ernel (headers|source)|/build: No such|Module\.symvers"),
        "the headers of this kernel are missing or incomplete: add linux-headers of exactly this "
        "kernel to the packages of the build",
    ),
    (
        re.compile(r"(gcc|cc|clang|ld|make)[\w.-]*: (command )?not found|unrecognized command"),
        "the compiler is missing or does not suit the kernel: add the one that built the kernel to "
        "the packages of the build",
    ),
    (
        re.compile(
            r"too (few|many) arguments|implicit declaration|has no member|incompatible|undeclared|"
            r"unknown type|undefined!|No such file or directory"
        ),
        TOO_NEW,
    ),
)
USUAL = "usual causes: headers of another kernel, another compiler, or a kernel that is too new"


def find_dkms_failure(tools: StepWorkspace, kernel: str) -> tuple[str, str] | None:
    """The reason in the make.log in the tree of `tools`, and what to do; None without a log.

    The tree is thrown away, so the step's log gets the whole make.log.
    """
    logs = sorted(matching(tools.tree / TREE, f"*/*/build/{LOG}"))
    if not logs:
        return None
    log = logs[-1]
    with tools.log.open("a") as whole:
        whole.write(f"\n{log.relative_to(tools.tree)}:\n{log.read_text(errors='replace')}")
    module, version = log.relative_to(tools.tree / TREE).parts[:2]
    said = tools.ask(["gcc", "--version"], check=False)
    compiler = said.stdout.splitlines()[0] if said.status == 0 and said.stdout else "no compiler"
    reason = last_error(log)
    return (
        f"DKMS cannot build {module} {version} for kernel {kernel} with {compiler}\n    {reason}",
        next((hint for pattern, hint in CAUSES if pattern.search(reason)), USUAL),
    )


def last_error(log: Path) -> str:
    """The last line of a make.log that says what is wrong, or else where make gave up."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for pattern in (REASON, GAVE_UP):
        found = [line for line in lines if pattern.search(line)]
        if found:
            return found[-1]
    return lines[-1] if lines else f"{LOG} is empty"
