# SPDX-License-Identifier: Apache-2.0
"""How commands declare options and arguments: first what each does, then its names."""

from __future__ import annotations

from typing import Any

import typer


def option(text: str, *names: str, **more: Any) -> Any:  # noqa: ANN401 - as Typer has it
    """An option; a switch without its opposite must name itself."""
    return typer.Option(*names, help=text, **more)


def path_option(text: str, *names: str, **more: Any) -> Any:  # noqa: ANN401
    """An option for a path that is checked when it is used."""
    return option(text, *names, readable=False, **more)


def argument(text: str, **more: Any) -> Any:  # noqa: ANN401
    return typer.Argument(help=text, **more)
