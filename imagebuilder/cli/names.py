# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share, with their shell completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Context, argument, option, path_option
from imagebuilder.rootkind import Format
from imagebuilder.settings import Settings
from imagebuilder.tree import DEFAULT_TREE, Tree


def offer(find: Callable[[Settings], Iterable[str]], context: typer.Context) -> list[str]:
    """What a shell offers; nothing if it cannot be found out."""
    from imagebuilder.errors import ImagebuilderError

    try:
        return list(find(context.ensure_object(Context).settings))
    except (ImagebuilderError, OSError):
        return []


def complete_profile(context: typer.Context, incomplete: str) -> list[str]:
    from imagebuilder.recipe.variant import offer_profiles

    return offer(partial(offer_profiles, incomplete), context)


def complete_base(context: typer.Context, incomplete: str) -> list[str]:
    return [base for base in offer(Settings.find_bases, context) if base.startswith(incomplete)]


def complete_engine(incomplete: str) -> list[str]:
    from imagebuilder.package_managers import ENGINES

    return [engine for engine in ENGINES if engine.startswith(incomplete)]


def complete_image(context: typer.Context, incomplete: str) -> list[str]:
    """Images of the store with this prefix, as profile@version, and their profiles."""
    from imagebuilder.store.repository import Store

    def find(settings: Settings) -> set[str]:
        images = Store(settings.state / "store").images()
        return {i.name for i in images} | {i.profile for i in images}

    return sorted(name for name in offer(find, context) if name.startswith(incomplete))


def typed_tree(context: typer.Context) -> Tree:
    """The tree of a command that is being completed."""
    return Tree(Path(context.params.get("tree") or DEFAULT_TREE))


def complete_release(context: typer.Context, incomplete: str) -> list[str]:
    """Releases of the tree with this prefix, as profile@version, and their profiles."""
    from imagebuilder.folders import matching

    releases = typed_tree(context).http / "releases"
    found = [(p.parent.name, p.name) for p in matching(releases, "*/*")]
    names = {f"{profile}@{version}" for profile, version in found} | {p for p, _ in found}
    return sorted(name for name in names if name.startswith(incomplete))


Profile = Annotated[
    str,
    argument(
        "The name of a recipe; NAME.BASE, NAME.ENGINE or NAME.BASE.ENGINE is that "
        "recipe on another base or by another engine.",
        autocompletion=complete_profile,
        envvar="PROFILE",
    ),
]
ImageName = Annotated[str, argument("PROFILE or PROFILE@VERSION.", autocompletion=complete_image)]
OnBase = Annotated[
    str,
    option(
        "Use another base from recipes/bases/; the same as PROFILE.BASE.",
        "--base",
        autocompletion=complete_base,
        metavar="BASE",
    ),
]
ByEngine = Annotated[
    str,
    option(
        "Build the first layer with another engine; the same as PROFILE.ENGINE.",
        "--engine",
        autocompletion=complete_engine,
        metavar="ENGINE",
    ),
]
Formats = Annotated[
    list[Format] | None,
    option("Also pack the root in this format, even if no node needs it. Repeatable.", "--format"),
]
AsJson = Annotated[bool, option("Print JSON (a stable format).", "--json")]
ReleaseName = Annotated[
    str, argument("PROFILE or PROFILE@VERSION.", autocompletion=complete_release)
]
TreeOption = Annotated[Path, path_option("The netboot tree.", "--tree", envvar="IMAGEBUILDER_TREE")]
Untested = Annotated[
    str,
    option(
        "Proceed even if proof or boot test is missing or failed; the reason is recorded.",
        metavar="REASON",
    ),
]
Days = Annotated[
    int, option("Days after its last sign of life for which a node counts as running.", min=1)
]
IgnoreClients = Annotated[
    bool, option("Ignore NFS clients that never reported a release.", "--ignore-unknown-clients")
]
Drain = Annotated[
    str,
    option(
        "Scheduler to drain nodes with: none, slurm, kubernetes, or a program of yours.",
        envvar="IMAGEBUILDER_DRAIN",
    ),
]
DrainSeconds = Annotated[
    float, option("Seconds to wait for the work on a node to end.", "--drain-timeout", min=1)
]
