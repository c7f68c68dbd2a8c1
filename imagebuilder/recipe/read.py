# SPDX-License-Identifier: Apache-2.0
"""Find and read the files that a profile consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.model import BaseFile, OverlayFile, RecipeFile, SiteFile
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.positions import Document, Origin, load_document
from imagebuilder.recipe.resolve import Merged, RecipeLink
from imagebuilder.recipe.rules import MOST_EXTENDED
from imagebuilder.recipe.validate import parse_model
from imagebuilder.settings import Settings, find_home

ModelT = TypeVar("ModelT", bound=BaseModel)

OVERLAY_FILE = "overlay.yaml"


@dataclass(frozen=True)
class LoadedSite:
    """The site file, its document (None if it does not exist), and the user's home.

    Not `sound` means that the file exists but is invalid: what it would set is unknown.
    """

    document: Document | None
    file: SiteFile
    home: Path
    sound: bool = True


def shown_path(path: Path, settings: Settings) -> str:
    """A path for people: below the project if it is there, else absolute."""
    inside = path.is_relative_to(settings.project) and not settings.without_project
    return str(path.relative_to(settings.project)) if inside else str(path)


@dataclass(frozen=True)
class Read(Generic[ModelT]):
    """A file and its model; not `sound` if only a part of it fits the model."""

    document: Document
    file: ModelT
    sound: bool


def read_file(
    model: type[ModelT], path: Path, settings: Settings, faults: list[Fault]
) -> Read[ModelT] | None:
    """The valid part of a file; everything invalid is added to `faults`."""
    try:
        document = load_document(path, shown_path(path, settings))
    except InputError as error:
        faults.extend(error.faults)
        return None
    file, sound = parse_model(model, document, faults)
    return None if file is None else Read(document, file, sound)


def load_chain(
    recipe: str, settings: Settings, faults: list[Fault]
) -> tuple[tuple[RecipeLink, ...], bool]:
    """The recipe's file, after those it extends, and whether all could be read."""
    recipes = settings.find_recipes()
    chain: list[RecipeLink] = []
    whole, path = True, recipes[recipe]
    while read := read_file(RecipeFile, path, settings, faults):
        chain.insert(0, RecipeLink(path.stem, read.document, read.file))
        whole = whole and read.sound
        extends = read.file.extends
        if extends is None:
            return tuple(chain), whole
        # A recipe cannot extend itself: its own name means the one that it replaces.
        replaced = settings.find_replaced(path) if extends == path.stem else None
        above = [link.name for link in chain if replaced is None]
        if problem := extends_problem(extends, above, list(recipes)):
            faults.append(read.document.fault(("extends",), *problem))
            break
        path = replaced or recipes[extends]
    return tuple(chain), False


def extends_problem(
    extends: str, above: Sequence[str], names: Sequence[str]
) -> tuple[str, str] | None:
    """What and hint if the first of the profiles `above` cannot extend this one."""
    if extends not in names:
        return f"no profile named {quote(extends)}", suggest(extends, names)
    if extends in above:
        cycle = [*above[above.index(extends) :: -1], extends]
        return f"profiles extend each other: {' -> '.join(reversed(cycle))}", ""
    if len(above) > MOST_EXTENDED:
        return f"more than {MOST_EXTENDED} profiles extend each other", "extend an earlier one"
    return None


def load_base(
    name: str, origin: Origin, settings: Settings, faults: list[Fault]
) -> tuple[str, Read[BaseFile]] | None:
    bases = settings.find_bases()
    if name not in bases:
        faults.append(origin.fault(f"no base named {quote(name)}", suggest(name, list(bases))))
        return None
    read = read_file(BaseFile, bases[name], settings, faults)
    return (name, read) if read else None


def choose_base(
    merged: Merged, name: str, settings: Settings, faults: list[Fault], *, whole: bool
) -> tuple[str, Read[BaseFile]] | None:
    """The base `name`, or if that is "" the recipe's; a `whole` chain must have one."""
    if name:
        return load_base(name, Origin(merged.document, ()), settings, faults)
    if merged.base:
        return load_base(*merged.base, settings, faults)
    if whole:
        hint = f"known: {', '.join(settings.find_bases())}"
        faults.append(merged.document.fault((), 'the key "base" is missing', hint))
    return None


def load_parts(
    merged: Merged, settings: Settings, faults: list[Fault]
) -> tuple[dict[str, Part], bool]:
    """The overlays of the profile in order, and whether all were read completely."""
    parts: dict[str, Part] = {}
    whole = True
    folders = settings.find_overlays()
    for name, origin in merged.overlays:
        read = None
        if name in folders:
            read = read_file(OverlayFile, folders[name] / OVERLAY_FILE, settings, faults)
        else:
            what = f"no overlay named {quote(name)}"
            faults.append(origin.fault(what, suggest(name, list(folders))))
        if read:
            parts[name] = Part(name, folders[name], read.document, read.file)
        whole = whole and read is not None and read.sound
    return parts, whole


def load_site_file(settings: Settings, env: Mapping[str, str]) -> SiteFile:
    """The site file of a person, its defaults without one.  Raises InputError."""
    faults: list[Fault] = []
    site = load_site(settings, find_home(env), faults)
    if faults:
        raise InputError.of(faults)
    return site.file


def load_site(settings: Settings, home: Path, faults: list[Fault]) -> LoadedSite:
    """The site file; the defaults if it does not exist."""
    if not settings.site.exists():
        return LoadedSite(None, SiteFile(), home)
    read = read_file(SiteFile, settings.site, settings, faults)
    if read is None:
        return LoadedSite(None, SiteFile(), home, sound=False)
    return LoadedSite(read.document, read.file, home, read.sound)
