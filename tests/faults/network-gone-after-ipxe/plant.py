# SPDX-License-Identifier: Apache-2.0
"""A switch that lets nothing through any more."""

from imagebuilder.boot.lab import unplug
from imagebuilder.boot.stand import Stand


def spoil(stand: Stand) -> None:
    """Take the tap off the wire."""
    unplug(stand.room, stand.guests[0].nic.tap)
