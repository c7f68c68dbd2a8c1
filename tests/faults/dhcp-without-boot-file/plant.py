# SPDX-License-Identifier: Apache-2.0
"""A router's DHCP server, which knows nothing of booting."""

from imagebuilder.boot.stand import Stand
from tests.faults.wire import other_dhcp


def spoil(stand: Stand) -> None:
    """Start it in the place of ours."""
    other_dhcp(stand, "--dhcp-range=10.77.0.200,10.77.0.220,255.255.255.0,12h")
