# SPDX-License-Identifier: Apache-2.0
"""Mistakes on the command line, reported in the form of every other error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import suggest

# Typer's base of errors in options and arguments; it has no public name in every version.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
# What people type although imagebuilder has it as an option.
OPTIONS_MEANT = {"help": "--help", "version": "--version"}
# Words of Typer and of the libraries below it, and ours.
WORDS = (
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a valid number.*", "must be a number"),
    (r"Input should be greater than or equal to (\S+)", r"must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"must be at most \1"),
    (r"Value error, (.*)", r"\1"),
    (r"Option ('.+') requires an argument", r"\1 needs a value"),
    (r"Got unexpected extra argument\S* \((.*)\)", r"unexpected argument: \1"),
)


@contextmanager
def reported_alike(context: typer.Context | None = None) -> Iterator[None]:
    """Raise Typer's errors as InputError; `context` is of the group that runs a command."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # it prints the help
            raise
        raise InputError.of([usage_fault(error, context)]) from error


def usage_fault(error: Exception, context: typer.Context | None) -> Fault:
    """The fault of an error of Typer."""
    found = getattr(error, "ctx", None) or context
    path = found.command_path if found else "imagebuilder"
    if found is context and found and found.invoked_subcommand:
        path += f" {found.invoked_subcommand}"
    where, hint = path.removeprefix("imagebuilder").strip(), f"run {path} --help for usage"
    kind, message = type(error).__name__, str(getattr(error, "message", error))
    if kind == "MissingParameter":
        return Fault(where, f"{named(error)} is missing", hint)
    if kind == "NoSuchOption":
        near = " or ".join(sorted(getattr(error, "possibilities", None) or ()))
        said = f"unknown option {getattr(error, 'option_name', '')}"
        return Fault(where, said, f"did you mean {near}?" if near else hint)
    if command := re.match(r"No such command '(.*?)'\.", message):
        name = command[1]
        commands = getattr(found and found.command, "commands", {}).items()
        near = suggest(name, [known for known, one in commands if not one.hidden], closest=True)
        if option := OPTIONS_MEANT.get(name):
            near = f"did you mean {option}?"
        return Fault(where, f'unknown command "{name}"', near or hint)
    if name := named(error):
        where = f"{where} {name}".strip()
    return Fault(where, plain(message), hint)


def named(error: Exception) -> str:
    """The option or argument that an error is about, as people type it."""
    param = getattr(error, "param", None)
    if param is None:
        return ""
    return str(param.metavar if param.param_type_name == "argument" else param.opts[0])


def plain(message: str) -> str:
    """A message of Typer in our words: no capital at its beginning, no full stop."""
    message = message.rstrip(".")
    for theirs, ours in WORDS:
        if found := re.fullmatch(theirs, message, re.DOTALL):
            return found.expand(ours)
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
