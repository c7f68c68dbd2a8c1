# SPDX-License-Identifier: Apache-2.0
"""A switch that lets nothing through any more."""

from imagebuilder.boot.lab import unplug
from imagebuilder.boot.server import BootServer


def spoil(boot_server: BootServer) -> None:
    """Take the tap off the wire."""
    unplug(boot_server.lab, boot_server.guests[0].nic.tap)
