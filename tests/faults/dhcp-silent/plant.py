# SPDX-License-Identifier: Apache-2.0
"""A DHCP server that hangs."""

from imagebuilder.boot.stand import Stand
from tests.faults.wire import DNSMASQ, silence


def spoil(stand: Stand) -> None:
    """Stop it."""
    silence(stand, DNSMASQ)
