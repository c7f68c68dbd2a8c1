# SPDX-License-Identifier: Apache-2.0
"""What a node with an image must have, for the health checks that run on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from imagebuilder.digest import Json
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.types import Hardware, Recipe


def promises_of(recipe: Recipe) -> Mapping[str, Json]:
    """The devices by PCI id, each with its possible drivers, and their device nodes."""
    return {
        "hardware": [promise(device) for device in recipe.hardware],
        "devices": [dict(asdict(device)) for device in recipe.expectations.devices],
    }


def promise(device: Hardware) -> Json:
    chip = device.chip or find_chip(device.pci)
    modules: list[Json] = [*chip.modules] if chip else []
    pci = device.pci.lower()
    return {"pci": pci, "name": device.name, "target": device.target, "modules": modules}
