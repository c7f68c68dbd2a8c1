# SPDX-License-Identifier: Apache-2.0
"""The program with all its commands, which it loads one at a time itself."""

from __future__ import annotations

import functools
from typing import TextIO

from typer.core import TyperGroup
from typer.main import get_command

from imagebuilder.cli.commands import COMMANDS, load_command
from imagebuilder.cli.context import Context
from imagebuilder.cli.program import app
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui


@functools.cache
def load_program() -> TyperGroup:
    """The group of all commands; it is made once."""
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    program.commands.update({name: load_command(name) for name in COMMANDS})
    return program


def context_of(settings: Settings, stream: TextIO) -> Context:
    """What a command is given that is called without the program."""
    context = Context()
    context.settings, context.ui = settings, Ui(stream)
    return context
