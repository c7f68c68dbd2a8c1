# SPDX-License-Identifier: Apache-2.0
"""Check the other addresses of vendors' repositories that the site file sets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import quote, suggest
from imagebuilder.plain import is_special
from imagebuilder.recipe.keys import certificate_problem
from imagebuilder.recipe.model import SiteSourceModel
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.positions import Document, KeyPath, Yaml, load_document
from imagebuilder.recipe.read import OVERLAY_FILE, LoadedSite
from imagebuilder.settings import Settings


def load_places(
    site: LoadedSite, parts: Mapping[str, Part], settings: Settings, faults: list[Fault]
) -> dict[str, SiteSourceModel]:
    """The site's places by the name of the source, the path of each key made absolute.

    A site file serves every profile: a source that no overlay has is a fault, but a key file is
    checked only if the profile has its source.
    """
    if site.document is None:
        return {}
    here = {source.name for part in parts.values() for source in part.file.sources}
    faults.extend(unknown_names(site.document, site.file.sources, here, settings))
    places: dict[str, SiteSourceModel] = {}
    for name, place in site.file.sources.items():
        path: KeyPath = ("sources", name)
        key = find_key_file(place.key, site.home, settings.site)
        places[name] = place.model_copy(update={"key": os.fspath(key) if key else ""})
        if bool(place.key) != bool(place.fingerprints):
            what = "a key and its fingerprints go together: one of them is missing"
            hint = "gpg --show-keys FILE lists them; without either, the vendor's key is used"
            faults.append(site.document.fault(path, what, hint, of_key=True))
        elif key and name in here:
            faults.extend(key_faults(site.document, path, place, key))
    return places


def find_key_file(text: str, home: Path, site_file: Path) -> Path | None:
    """The path of a key: `~/` is the user's home, other relative paths start at the site file."""
    if not text:
        return None
    return home / text[2:] if text.startswith("~/") else site_file.parent / text


def key_faults(
    document: Document, path: KeyPath, place: SiteSourceModel, key: Path
) -> Iterator[Fault]:
    if not key.is_file():
        what = "is not a file" if is_special(key) else "does not exist"
        yield document.fault((*path, "key"), f"the file {key} {what}")
    elif problem := certificate_problem(key, str(key), place.fingerprints, "its owner"):
        wrong, what, hint = problem
        yield document.fault((*path, wrong), what, hint)


def unknown_names(
    document: Document, names: Iterable[str], here: set[str], settings: Settings
) -> Iterator[Fault]:
    """A fault for each name that no overlay has; `here` are the sources of the profile."""
    missing = [name for name in names if name not in here]
    known = sorted(here | set(every_source(settings))) if missing else []
    for name in missing:
        if name not in known:
            hint = suggest(name, known) or "the overlays' files name their sources"
            what = f"no overlay has a source named {quote(name)}"
            yield document.fault(("sources", name), what, hint, of_key=True)


def every_source(settings: Settings) -> Iterator[str]:
    """The names of the sources of all overlays; unreadable overlays are skipped."""
    for overlay, folder in settings.find_overlays().items():
        with contextlib.suppress(InputError):
            document = load_document(folder / OVERLAY_FILE, overlay)
            yield from source_names(document.value.get("sources"))


def source_names(sources: Yaml) -> Iterator[str]:
    for source in sources if isinstance(sources, Sequence) else ():
        if isinstance(source, Mapping) and isinstance(source.get("name"), str):
            yield str(source["name"])
