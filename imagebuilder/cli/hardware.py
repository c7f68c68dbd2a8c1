# SPDX-License-Identifier: Apache-2.0
"""Cards: list the known ones, show one, and detect those of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
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
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="List only cards that have all of these words."),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the known cards, with the oldest Linux that has their driver.

    Example: imagebuilder hardware list rx 9070
    """
    from imagebuilder.recipe.cards import load_cards

    common: Context = context.obj
    found = matching(list(load_cards(common.settings).chips.values()), words or [])
    if json:
        print_json([chip.as_json() for chip in found])
        return
    rows = [
        (c.pci, c.name, c.architecture, c.target, ", ".join(c.computes), c.kernel) for c in found
    ]
    print_table(
        rows, HEADERS, empty="no card matches these words: describe yours in hardware/NAME.yaml"
    )


def matching(chips: list[Chip], words: list[str]) -> list[Chip]:
    """The chips with all words in their id, names, vendor, architecture or target."""
    wanted = [word.casefold() for text in words for word in text.split()]

    def text(chip: Chip) -> str:
        parts = (chip.pci, chip.name, chip.vendor, chip.architecture, chip.target, chip.family)
        return " ".join(parts).casefold()

    return [chip for chip in chips if all(word in text(chip) for word in wanted)]


@hardware_app.command("show")
def hardware_show(
    context: typer.Context,
    card: Annotated[str, typer.Argument(help="PCI id, such as 1002:7550, or name of a card.")],
    json: AsJson = False,
) -> None:
    """Show what a card needs, and the source of each fact.

    Example: imagebuilder hardware show "Radeon RX 9070"
    """
    from imagebuilder.recipe.cards import load_cards

    common: Context = context.obj
    chip = find_card(card, load_cards(common.settings))
    print_json(chip.as_json()) if json else print_text(chip.render())


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
    context: typer.Context,
    host: Annotated[
        str,
        typer.Argument(metavar="[HOST]", help="Machine that ssh reaches. [default: this one]"),
    ] = "",
    write: Annotated[
        str, typer.Option("--write", metavar="NAME", help="Write the recipe to recipes/NAME.yaml.")
    ] = "",
    card: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CARD",
            help="Propose a recipe for this card, by its PCI id or name, instead of looking for "
            "one. Repeatable.",
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

    common: Context = context.obj
    if host and card:
        raise InputError("--card: a machine is named too", hint="leave out one of them")
    if card:
        cards = load_cards(common.settings)
        devices = tuple(PciDevice("", find_card(each, cards).pci, "") for each in card)
        host = " and ".join(card)
    else:
        devices = ask_devices(host) if host else read_devices()
    found = detect(host or "this machine", devices, common.settings)
    if write and not found.recipe:
        if found.refused:
            raise InputError.of(found.refused)
        hint = "name the card with --card; imagebuilder hardware list shows them"
        raise InputError("has no known card", where=found.machine, hint=hint)
    if write:
        write_recipe(write, found.recipe, common.settings)
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
