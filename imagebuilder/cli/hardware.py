# SPDX-License-Identifier: Apache-2.0
"""Cards: list the known ones, show one, and detect those of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import (
    Call,
    argument,
    option,
    print_json,
    print_list,
    print_result,
    print_text,
)
from imagebuilder.cli.names import AsJson

if TYPE_CHECKING:
    from imagebuilder.detect import Detected
    from imagebuilder.recipe.cards import Cards
    from imagebuilder.recipe.chip import Chip

hardware_app = typer.Typer(
    name="hardware",
    help="List known cards, show what one needs, and detect those of a machine.",
    no_args_is_help=True,
)
NEAR = 5  # most names of cards in a hint
HEADERS = ("PCI id", "card", "architecture", "target", "computes with", "Linux")


@hardware_app.command("list")
def hardware_list(
    context: Call,
    words: Annotated[
        list[str] | None,
        argument("List only cards that have all of these words.", metavar="[WORD]..."),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the known cards, with the oldest Linux that has their driver.

    Example: imagebuilder hardware list rx 9070
    """
    from imagebuilder.recipe.cards import load_cards

    found = matching(list(load_cards(context.obj.settings).chips.values()), words or [])
    empty = "no card matches these words: describe yours in hardware/NAME.yaml"
    print_list(found, HEADERS, empty=empty, json=json)


def matching(chips: list[Chip], words: list[str]) -> list[Chip]:
    """The chips with all words in their id, names, vendor, architecture or target."""
    wanted = [word.casefold() for text in words for word in text.split()]

    def text(chip: Chip) -> str:
        parts = (chip.pci, chip.name, chip.vendor, chip.architecture, chip.target, chip.family)
        return " ".join(parts).casefold()

    return [chip for chip in chips if all(word in text(chip) for word in wanted)]


@hardware_app.command("show")
def hardware_show(
    context: Call,
    card: Annotated[str, argument("PCI id, such as 1002:7550, or name of a card.")],
    json: AsJson = False,
) -> None:
    """Show what a card needs, and the source of each fact.

    Example: imagebuilder hardware show "Radeon RX 9070"
    """
    from imagebuilder.recipe.cards import load_cards

    chip = find_card(card, load_cards(context.obj.settings))
    print_result(chip, json=json)


def find_card(text: str, cards: Cards) -> Chip:
    """The card with this PCI id or name.  Raises InputError with the names that have its words."""
    from imagebuilder.errors import InputError
    from imagebuilder.phrases import suggest

    if chip := cards.find(text) or cards.named(text):
        return chip
    near = matching(list(cards.chips.values()), [text])[:NEAR]
    meant = ", ".join(f'"{chip.names[0]}"' for chip in near)
    hint = f"did you mean {meant}?" if meant else ""
    hint = hint or suggest(text, [*cards.chips, *cards.names], closest=True)
    raise InputError(
        "no card has this PCI id or name",
        where=text,
        hint=hint or "list all cards with imagebuilder hardware list",
    )


@hardware_app.command("detect")
def hardware_detect(
    context: Call,
    host: Annotated[
        str, argument("Machine that ssh reaches. [default: this one]", metavar="[HOST]")
    ] = "",
    write: Annotated[
        str, option("Write the recipe to recipes/NAME.yaml.", "--write", metavar="NAME")
    ] = "",
    card: Annotated[
        list[str] | None,
        option(
            "Propose a recipe for this card, by its PCI id or name, instead of looking for "
            "one. Repeatable.",
            metavar="CARD",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Detect the accelerators of a machine and propose a recipe that can be built.

    Example: imagebuilder hardware detect node3 --write node3
    """
    from imagebuilder.detect import PciDevice, ask_devices, detect, read_devices, write_recipe
    from imagebuilder.errors import InputError
    from imagebuilder.recipe.cards import load_cards

    if host and card:
        raise InputError("--card: a machine is named too", hint="leave out one of them")
    if card:
        cards = load_cards(context.obj.settings)
        devices = tuple(PciDevice("", find_card(each, cards).pci, "") for each in card)
        host = " and ".join(card)
    else:
        devices = ask_devices(host) if host else read_devices()
    found = detect(host or "this machine", devices, context.obj.settings)
    if write and not found.recipe:
        if found.refused:
            raise InputError.of(found.refused)
        hint = "name the card with --card; imagebuilder hardware list shows them"
        raise InputError("has no known card", where=found.machine, hint=hint)
    if write:
        write_recipe(write, found.recipe, context.obj.settings)
    print_json(found.as_json()) if json else print_text(render_detected(found, write))


def render_detected(found: Detected, written: str) -> str:
    """What was detected, the recipe, and the next command."""
    if not found.found:
        return f"{found.machine} has no accelerator; for a card that is elsewhere, add --card CARD"
    lines = [
        f"{device.pci}  {chip.name if chip else 'unknown: describe it in hardware/NAME.yaml'}"
        for device, chip in found.found
    ]
    if found.left_out:
        pcis = ", ".join(device.pci for device in found.left_out)
        left_out = f"Left out in favour of the card: {pcis}"
        lines += ["", f"{left_out}. To compute on it, add it to `hardware:`"]
    if found.recipe:
        name = written or "NAME"
        then = f"imagebuilder build {name}"
        done = f"Wrote recipes/{name}.yaml; build it with: {then}"
        offer = f"To write and build it: add --write {name}, then {then}"
        lines += ["", found.recipe, done if written else offer]
    elif found.nearest:
        others = [str(fault) for fault in found.refused if fault not in found.lacks]
        lines += ["", "No recipe can be built yet. The nearest one:", "", found.nearest]
        lines += ["What it lacks:", *(str(fault) for fault in found.lacks)]
        lines += ["", "What other recipes lack:", *others] if others else []
    elif found.refused:
        lines += ["", "No recipe can be built:", *(str(fault) for fault in found.refused)]
    return "\n".join(lines)
