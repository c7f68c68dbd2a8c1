# SPDX-License-Identifier: Apache-2.0
"""What every command needs: settings and ui from the global options, and output of results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui, table
from imagebuilder.untrusted import presentable


@dataclass(frozen=True)
class Context:
    settings: Settings
    ui: Ui


def wants_colour() -> bool:
    """Whether stdout is a terminal with colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Json) -> None:
    """Print a result for programs on stdout."""
    print_text(json.dumps(value, indent=1, ensure_ascii=False))


def print_table(rows: Sequence[Sequence[str]], headers: Sequence[str], *, empty: str) -> None:
    """Print a result for people on stdout; prints `empty` without rows."""
    print_text(table(rows, headers) if rows else empty)


def print_text(text: str) -> None:
    """Print a result as text on stdout.  Raises WorkError if it cannot be written."""
    text = presentable(text)
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # Discard the rest, even what Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return  # the reader, such as head, has enough
        raise WorkError(
            f"could not write the result: {error.strerror}", where="standard output"
        ) from error
