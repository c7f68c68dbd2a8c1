# SPDX-License-Identifier: Apache-2.0
"""The program with all its commands, which it loads one at a time itself."""

from __future__ import annotations

import functools

from typer.core import TyperGroup
from typer.main import get_command

from imagebuilder.cli.commands import COMMANDS, load_command
from imagebuilder.cli.main import app


@functools.cache
def load_program() -> TyperGroup:
    """The group of all commands; it is made once."""
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    program.commands.update({name: load_command(name) for name in COMMANDS})
    return program
