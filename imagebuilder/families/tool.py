# SPDX-License-Identifier: Apache-2.0
"""The program behind an engine: find it on this host, or say how to install it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.environment import base_environment
from imagebuilder.errors import HostError
from imagebuilder.process import MOST, run


@dataclass(frozen=True)
class Tool:
    """A program of the host that makes first layers; `least` is the oldest major version that works
    (0: any), `install` the command that installs it.
    """

    engine: str
    program: str
    install: str
    least: int = 0


def find_program(name: str) -> Path | None:
    """A program in our own Python environment, or else on the host."""
    beside_python = Path(sys.executable).with_name(name)
    if beside_python.exists():
        return beside_python
    found = shutil.which(name, path=base_environment()["PATH"])
    return Path(found) if found else None


def find_tool(tool: Tool) -> Path:
    """The program in our own Python environment, or else on the host.  Raises HostError."""
    program = find_program(tool.program)
    if program is None:
        raise HostError(
            f"the base has `engine: {tool.engine}`, but {tool.program} is not installed",
            hint=f"run {tool.install}",
        )
    return program


def check_tool(tool: Tool) -> str:
    """The version of the program that makes first layers.  Raises HostError."""
    program = find_tool(tool)
    done = run([program, "--version"], check=False)
    version = re.search(r"\d+(?:\.\d+)*", done.stdout)
    if done.status != 0 or version is None:
        words = (done.stderr or done.stdout).strip()[-MOST:]
        raise HostError(
            f"{program} does not print its version\n    {words}", hint=f"run {tool.install}"
        )
    if int(version[0].split(".")[0]) < tool.least:
        raise HostError(
            f"{program} has version {version[0]}, but at least {tool.least} is needed",
            hint=f"run {tool.install}",
        )
    return version[0]


def check_path(tool: Tool, path: Path) -> None:
    """Raise HostError if the program would split `path`, which it passes on unquoted."""
    if not re.fullmatch(r"[\w/.+@~-]+", os.fspath(path)):
        raise HostError(
            f"`engine: {tool.engine}` cannot work in a folder of this name",
            where=os.fspath(path),
            hint="set IMAGEBUILDER_STATE to a folder of letters, digits and -_.+@~",
        )
