# SPDX-License-Identifier: Apache-2.0
"""What is known of accelerators by their PCI id: driver, firmware, accelerator target.

The facts are the drivers' own (their MODULE_FIRMWARE lists and IP discovery tables); each row says
where they are from.  `firmware` are globs below /usr/lib/firmware: each must match one file or
more.  Files may be compressed: `.xz` or `.zst` is not written here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """An accelerator: `pci` as `1002:7480`, the kernel modules one of which drives it, and what
    that asks for at boot.  `target` is "" where there is no such thing.
    """

    pci: str
    name: str
    vendor: str
    target: str
    modules: tuple[str, ...]
    firmware: tuple[str, ...]
    source: str


CHIPS: tuple[Chip, ...] = ()


def find_chip(pci: str) -> Chip | None:
    """The chip with this PCI id, if it is known."""
    return next((chip for chip in CHIPS if chip.pci == pci), None)
