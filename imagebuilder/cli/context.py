# SPDX-License-Identifier: Apache-2.0
"""What every command needs: how options are declared, the global ones, output of results."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.settings import Settings, load_settings
from imagebuilder.ui import Ui, table
from imagebuilder.untrusted import presentable

GLOBAL_OPTIONS = "Global options"


@dataclass
class Context:
    """The global options as far as they are read; settings and ui are made when first used."""

    state: Path | None = None
    project: Path | None = None
    verbose: bool = False

    @cached_property
    def settings(self) -> Settings:
        """Raises InputError as load_settings does."""
        return load_settings(
            os.environ, state=self.state, project=self.project, verbose=self.verbose
        )

    @cached_property
    def ui(self) -> Ui:
        return Ui.for_stream(sys.stderr, os.environ, verbose=self.verbose)


class Call(typer.Context):
    """What Typer gives to a command, with the type of what the program keeps in it."""

    obj: Context


def keep(
    context: typer.Context, option: typer.CallbackParam, value: Path | bool | None
) -> Path | bool | None:
    """Note a global option; one after the command counts more than one before it."""
    common = context.ensure_object(Context)
    if value and option.name:
        setattr(common, option.name, value)
    return value


# How commands declare options and arguments: first what each does, then its names.


def option(text: str, *names: str, **more: Any) -> Any:  # noqa: ANN401 - as Typer has it
    """An option; a switch without its opposite must name itself."""
    return typer.Option(*names, help=text, **more)


def path_option(text: str, *names: str, **more: Any) -> Any:  # noqa: ANN401
    """An option for a path that is checked when it is used."""
    return option(text, *names, readable=False, **more)


def argument(text: str, **more: Any) -> Any:  # noqa: ANN401
    return typer.Argument(help=text, **more)


def shared(text: str, *names: str, **more: Any) -> Any:  # noqa: ANN401 - as Typer has it
    """A global option."""
    panel = {"rich_help_panel": GLOBAL_OPTIONS}
    return path_option(text, *names, callback=keep, expose_value=False, **panel, **more)


State = Annotated[
    Path | None,
    shared(
        "Folder for layers, images and logs. [default: /var/lib/imagebuilder]",
        envvar="IMAGEBUILDER_STATE",
    ),
]
Project = Annotated[
    Path | None,
    shared(
        "Folder with recipes/ and overlays/. [default: the nearest one upwards]",
        envvar="IMAGEBUILDER_PROJECT",
    ),
]
Verbose = Annotated[
    bool, shared("Print more details, such as the output of each step.", "--verbose", "-v")
]


def wants_colour() -> bool:
    """Whether stdout is a terminal with colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Json) -> None:
    """Print a result for programs on stdout, piece by piece: what nodes said may be long."""
    pieces = json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(value)
    print_pieces(itertools.chain(pieces, ["\n"]))


class Showable(Protocol):
    """A result that programs and people can read."""

    def as_json(self) -> Json: ...
    def render(self) -> str: ...


class Listable(Protocol):
    """A result that is a row of a table."""

    def as_json(self) -> Json: ...
    def row(self) -> Sequence[str]: ...


def print_answer(value: Json, text: str, *, json: bool) -> None:
    """Print a result on stdout: `value` for programs, or `text` for people."""
    print_json(value) if json else print_text(text)


def print_result(found: Showable, *, json: bool) -> None:
    """Print a result on stdout, for programs or for people."""
    print_answer(found.as_json(), found.render(), json=json)


def print_list(
    found: Sequence[Listable], headers: Sequence[str], *, empty: str, json: bool
) -> None:
    """Print several results on stdout, for programs or as a table; `empty` if there are none."""
    if json:
        print_json([one.as_json() for one in found])
    else:
        print_table([one.row() for one in found], headers, empty=empty)


def exit_unless(good: bool) -> None:
    """End with 1 unless what was done went well."""
    if not good:
        raise typer.Exit(1)


def print_table(rows: Sequence[Sequence[str]], headers: Sequence[str], *, empty: str) -> None:
    """Print a result for people on stdout; prints `empty` without rows."""
    print_text(table(rows, headers) if rows else empty)


def print_text(text: str) -> None:
    """Print a result as text on stdout.  Raises WorkError if it cannot be written."""
    print_pieces([text if text.endswith("\n") else f"{text}\n"])


def print_pieces(pieces: Iterable[str]) -> None:
    """Print the pieces of a text as print_text() does."""
    try:
        for piece in pieces:
            sys.stdout.write(presentable(piece))
        sys.stdout.flush()
    except OSError as error:
        # Discard the rest, even what Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return  # the reader, such as head, has enough
        raise WorkError(
            f"could not write the result: {error.strerror}", where="standard output"
        ) from error
