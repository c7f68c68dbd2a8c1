# SPDX-License-Identifier: Apache-2.0
"""Summaries of all profiles, made without reading their overlays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import Fault
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.load import sorted_faults
from imagebuilder.recipe.read import load_chain
from imagebuilder.recipe.resolve import merge_chain
from imagebuilder.recipe.variant import check_file_name
from imagebuilder.settings import Settings


@dataclass(frozen=True)
class ProfileSummary:
    """A profile in one line; `fault` is its first fault, or empty.

    With a fault, `base` may be empty and `overlays` incomplete.  `origin` is as in Settings.
    """

    name: str
    description: str
    base: str
    overlays: tuple[str, ...]
    hardware: tuple[str, ...]
    origin: str
    fault: str = ""

    def as_json(self) -> dict[str, Json]:
        keys = ("name", "description", "base", "overlays", "hardware", "origin", "fault")
        found = ((key, getattr(self, key)) for key in keys)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in found}

    def row(self) -> tuple[str, ...]:
        """The columns of `profiles`."""
        about = self.fault.partition("\n")[0] or self.description
        return self.name, self.base, self.origin, about


def find_profiles(settings: Settings) -> tuple[ProfileSummary, ...]:
    """Every profile by name; a broken one is listed with its first fault."""
    overlays, bases = list(settings.find_overlays()), list(settings.find_bases())
    return tuple(
        summarise(path, settings, bases, overlays) for path in settings.find_recipes().values()
    )


def summarise(
    path: Path, settings: Settings, bases: list[str], overlays: list[str]
) -> ProfileSummary:
    faults: list[Fault] = []
    name, origin = path.stem, settings.origin(path)
    check_file_name(path, settings, faults)
    chain, whole = load_chain(name, settings, faults)
    if not chain:
        return ProfileSummary(name, "", "", (), (), origin, first_of(faults))
    merged = merge_chain(chain, faults)
    for overlay, named in merged.overlays:
        if overlay not in overlays:
            what = f"no overlay named {quote(overlay)}"
            faults.append(named.fault(what, suggest(overlay, overlays)))
    base = merged.base[0] if merged.base else ""
    if merged.base and base not in bases:
        faults.append(merged.base[1].fault(f"no base named {quote(base)}", suggest(base, bases)))
    if whole and not base:
        faults.append(merged.document.fault((), 'the key "base" is missing'))
    return ProfileSummary(
        name=name,
        description=merged.description,
        base=base,
        overlays=tuple(overlay for overlay, _ in merged.overlays),
        hardware=tuple(d.name or d.card or d.pci or "" for d in merged.hardware),
        origin=origin,
        fault=first_of(faults),
    )


def first_of(faults: list[Fault]) -> str:
    return str(sorted_faults(faults)[0]) if faults else ""
