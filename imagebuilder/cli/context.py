# SPDX-License-Identifier: Apache-2.0
"""What every command needs: the global options, settings and ui from them, output of results."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

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


def keep(
    context: typer.Context, option: typer.CallbackParam, value: Path | bool | None
) -> Path | bool | None:
    """Note a global option; one after the command counts more than one before it."""
    common = context.ensure_object(Context)
    if value and option.name:
        setattr(common, option.name, value)
    return value


State = Annotated[
    Path | None,
    typer.Option(
        envvar="IMAGEBUILDER_STATE",
        readable=False,  # checked when it is used
        callback=keep,
        expose_value=False,
        rich_help_panel=GLOBAL_OPTIONS,
        help="Folder for layers, images and logs. [default: /var/lib/imagebuilder]",
    ),
]
Project = Annotated[
    Path | None,
    typer.Option(
        envvar="IMAGEBUILDER_PROJECT",
        readable=False,
        callback=keep,
        expose_value=False,
        rich_help_panel=GLOBAL_OPTIONS,
        help="Folder with recipes/ and overlays/. [default: the nearest one upwards]",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        callback=keep,
        expose_value=False,
        rich_help_panel=GLOBAL_OPTIONS,
        help="Print more details, such as the output of each step.",
    ),
]


def wants_colour() -> bool:
    """Whether stdout is a terminal with colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Json) -> None:
    """Print a result for programs on stdout, piece by piece: what nodes said may be long."""
    pieces = json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(value)
    print_pieces(itertools.chain(pieces, ["\n"]))


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
