# SPDX-License-Identifier: Apache-2.0
"""A DHCP server that hangs."""

from imagebuilder.boot.server import BootServer
from tests.faults.wire import DNSMASQ, silence


def spoil(boot_server: BootServer) -> None:
    """Stop it."""
    silence(boot_server, DNSMASQ)
