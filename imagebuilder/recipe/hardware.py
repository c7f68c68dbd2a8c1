# SPDX-License-Identifier: Apache-2.0
"""`hardware:` of a recipe: each device by PCI id or by the name of its card, and what it is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.cards import Cards, find_chip, load_cards
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.model_hardware import HardwareModel
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.recipe.resolve import Merged
from imagebuilder.recipe.types import Hardware
from imagebuilder.settings import Settings

LIST = "imagebuilder hardware list"
NEAREST = 3


def chip_of(device: Hardware) -> Chip | None:
    """The description of a device: the project's own, or else the shipped one."""
    return device.chip or find_chip(device.pci)


def resolve_hardware(
    merged: Merged, settings: Settings, faults: list[Fault]
) -> tuple[Hardware, ...] | None:
    """The devices of a recipe; None, with faults, if one of them is not known."""
    if not merged.hardware:
        return ()
    try:
        cards = load_cards(settings)
    except InputError as error:
        faults.extend(error.faults)
        return None
    document = merged.lists_hardware
    found = [
        resolve_device(model, document, ("hardware", number), cards, faults)
        for number, model in enumerate(merged.hardware)
    ]
    whole = tuple(device for device in found if device)
    return whole if len(whole) == len(found) else None


def resolve_device(
    model: HardwareModel, document: Document, path: KeyPath, cards: Cards, faults: list[Fault]
) -> Hardware | None:
    """One device; None, with a fault, if it is neither known nor assumed to work."""
    if (model.pci is None) == (model.card is None):
        what = "names its card twice" if model.pci else "names no card"
        faults.append(document.fault(path, what, "give either `pci:` or `card:`"))
        return None
    if model.card is not None:
        chip = cards.named(model.card)
        if chip is None:
            hint = suggest(model.card, cards.names, closest=True) or f"{LIST} shows every card"
            what = f"no card named {quote(model.card)}"
            faults.append(document.fault((*path, "card"), what, hint))
            return None
        name = next(n for n in chip.names if n.casefold() == model.card.casefold())
        return known_device(model, name, chip, document, path, faults)
    pci = model.pci or ""
    chip = cards.find(pci)
    if chip:
        return known_device(model, chip.name, chip, document, path, faults)
    if model.assume is None:
        what = f"no known card has the PCI id {pci}"
        faults.append(document.fault((*path, "pci"), what, unknown_hint(model, cards)))
        return None
    return Hardware(pci, model.name or pci, model.target, assume=model.assume)


def known_device(
    model: HardwareModel,
    name: str,
    chip: Chip,
    document: Document,
    path: KeyPath,
    faults: list[Fault],
) -> Hardware:
    """A device that hardware/*.yaml describes; `assume` is a fault."""
    if model.assume is not None:
        what = f"{chip.pci} is known: it is {chip.name}"
        faults.append(document.fault((*path, "assume"), what, "remove `assume:`"))
    project_chip = None if chip == find_chip(chip.pci) else chip
    return Hardware(chip.pci, model.name or name, model.target or chip.target, chip=project_chip)


def unknown_hint(model: HardwareModel, cards: Cards) -> str:
    """The hint for an unknown PCI id: similar ids, and how to describe or assume a card."""
    by_name = cards.named(model.name) if model.name else None
    like = near(model.pci or "", cards.chips)
    meant = [by_name] if by_name else like
    hint = ""
    if meant:
        hint = "did you mean " + " or ".join(f"{c.pci} ({c.names[0]})" for c in meant) + "? "
    return (
        f"{hint}{LIST} shows every card; describe yours in hardware/NAME.yaml, or say why it "
        "will work with `assume: REASON`"
    )


def near(pci: str, chips: Mapping[str, Chip]) -> list[Chip]:
    """The cards of the same vendor whose ids look like this one."""
    same = [each for each in chips if each[:5] == pci[:5]]
    return [chips[each] for each in difflib.get_close_matches(pci, same, n=NEAREST, cutoff=0.85)]
