# SPDX-License-Identifier: Apache-2.0
"""The program behind an engine: whether this host has it, and how it comes here if not."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.process import MOST, base_environment, run


@dataclass(frozen=True)
class Tool:
    """A program of the host that makes first layers; `least` is the oldest that will do (0: any),
    `install` the command that brings it."""

    engine: str
    program: str
    install: str
    least: int = 0


def find_tool(tool: Tool) -> Path:
    """The program of our own environment, or else of the host.  Raises HostError."""
    own = Path(sys.executable).with_name(tool.program)
    found = shutil.which(tool.program, path=base_environment()["PATH"])
    program = own if own.exists() else Path(found) if found else None
    if program is None:
        raise HostError(
            f"the base says `engine: {tool.engine}`, and {tool.program} is not installed",
            hint=tool.install,
        )
    return program


def check_tool(tool: Tool) -> str:
    """The version of the program that first layers will be made with.  Raises HostError."""
    program = find_tool(tool)
    said = run([program, "--version"], check=False)
    version = re.search(r"\d+(?:\.\d+)*", said.stdout)
    if said.status != 0 or version is None:
        words = (said.stderr or said.stdout).strip()[-MOST:]
        raise HostError(f"{program} does not say its version\n    {words}", hint=tool.install)
    if int(version[0].split(".")[0]) < tool.least:
        raise HostError(
            f"{program} is of version {version[0]}, at least {tool.least} is needed",
            hint=tool.install,
        )
    return version[0]


def check_path(tool: Tool, path: Path) -> None:
    """Raise HostError when the program would split `path`, which it passes on unquoted."""
    if not re.fullmatch(r"[\w/.+@~-]+", os.fspath(path)):
        raise HostError(
            f"`engine: {tool.engine}` cannot work in a folder of this name",
            where=os.fspath(path),
            hint="set IMAGEBUILDER_STATE to a folder of letters, digits and -_.+@~",
        )
