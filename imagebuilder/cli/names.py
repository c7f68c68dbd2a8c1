# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share, with their shell completion."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def complete_profile(incomplete: str) -> list[str]:
    """Profiles of the house that start so."""
    from imagebuilder.errors import ImagebuilderError
    from imagebuilder.settings import load_settings

    try:
        recipes = load_settings(os.environ).recipes
    except ImagebuilderError:
        return []
    return sorted(p.stem for p in recipes.glob("*.yaml") if p.stem.startswith(incomplete))


def complete_image(incomplete: str) -> list[str]:
    """Images of the store that start so, as profile@version, and their profiles."""
    from imagebuilder.errors import ImagebuilderError
    from imagebuilder.settings import load_settings
    from imagebuilder.store.repository import Store

    try:
        images = Store(load_settings(os.environ).state / "store").images()
    except (ImagebuilderError, OSError):
        return []
    names = {i.name for i in images} | {i.profile for i in images}
    return sorted(n for n in names if n.startswith(incomplete))


Profile = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_profile, envvar="PROFILE", help="A recipe of recipes/, by name."
    ),
]
ImageName = Annotated[
    str,
    typer.Argument(autocompletion=complete_image, help="PROFILE or PROFILE@VERSION."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a stable contract.")]
