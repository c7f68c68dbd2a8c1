# SPDX-License-Identifier: Apache-2.0
"""Merge a chain of recipe files into one: its base, overlays and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.errors import Fault
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.model import BootModel, RecipeFile
from imagebuilder.recipe.model_hardware import HardwareModel
from imagebuilder.recipe.model_words import VarValue
from imagebuilder.recipe.positions import Document, Origin
from imagebuilder.recipe.types import Boot


@dataclass(frozen=True)
class RecipeLink:
    name: str
    document: Document
    file: RecipeFile


@dataclass(frozen=True)
class VarSetting:
    """A value for a var and where it was written; `origin` is None for the user's ssh keys."""

    value: VarValue
    origin: Origin | None


@dataclass(frozen=True)
class Merged:
    """A chain of recipe files as one: each value is from the last file that sets it."""

    document: Document
    description: str
    base: tuple[str, Origin] | None
    kernel: tuple[str, Origin] | None
    overlays: tuple[tuple[str, Origin], ...]
    removed: Mapping[str, Origin]
    settings: Mapping[str, VarSetting]
    hardware: tuple[HardwareModel, ...]
    lists_hardware: Document
    boot: Boot


def merge_chain(chain: Sequence[RecipeLink], faults: list[Fault]) -> Merged:
    """Merge recipe files, the most basic first.

    Overlays are appended to those of the extended profile after `without` took some away; vars and
    the keys of `boot` override one by one; `hardware` is replaced where it is given.
    """
    overlays: list[tuple[str, Origin]] = []
    removed: dict[str, Origin] = {}
    for link in chain:
        removed |= remove_overlays(link, overlays, faults)
        add_overlays(link, overlays, faults)
    bases = [(n.file.base, Origin(n.document, ("base",))) for n in chain if n.file.base]
    kernels = [(n.file.kernel, Origin(n.document, ("kernel",))) for n in chain if n.file.kernel]
    settings = {
        name: VarSetting(value, Origin(link.document, ("vars", name)))
        for link in chain
        for name, value in link.file.vars.items()
    }
    listing = [n for n in chain if "hardware" in n.file.model_fields_set][-1:]
    hardware = [device for n in listing for device in n.file.hardware]
    descriptions = [n.file.description for n in chain if n.file.description]
    return Merged(
        document=chain[-1].document,
        description=descriptions[-1] if descriptions else "",
        base=bases[-1] if bases else None,
        kernel=kernels[-1] if kernels else None,
        overlays=tuple(overlays),
        removed=removed,
        settings=settings,
        hardware=tuple(hardware),
        lists_hardware=(listing or chain)[-1].document,
        boot=merge_boot(chain),
    )


def remove_overlays(
    link: RecipeLink, overlays: list[tuple[str, Origin]], faults: list[Fault]
) -> dict[str, Origin]:
    """Remove `without` from `overlays`; returns the removed ones and where that is written."""
    names = [name for name, _ in overlays]
    for index, name in enumerate(link.file.without):
        if name not in names:
            what = f"the extended profile has no overlay {quote(name)}"
            faults.append(link.document.fault(("without", index), what, suggest(name, names)))
    overlays[:] = [choice for choice in overlays if choice[0] not in link.file.without]
    return {
        name: Origin(link.document, ("without", index))
        for index, name in enumerate(link.file.without)
        if name in names
    }


def add_overlays(link: RecipeLink, overlays: list[tuple[str, Origin]], faults: list[Fault]) -> None:
    for index, name in enumerate(link.file.overlays):
        origin = Origin(link.document, ("overlays", index))
        earlier = next((origin for known, origin in overlays if known == name), None)
        if earlier is None:
            overlays.append((name, origin))
            continue
        place = "" if earlier.document is link.document else f" in {earlier.document.shown}"
        faults.append(origin.fault(f"{quote(name)} is already listed{place}"))


def merge_boot(chain: Sequence[RecipeLink]) -> Boot:
    models = [link.file.boot for link in chain if link.file.boot]
    values = {name: getattr(model, name) for model in models for name in model.model_fields_set}
    boot = BootModel(**values)
    return Boot(boot.root, tuple(boot.console), tuple(boot.cmdline))
