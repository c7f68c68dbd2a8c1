# SPDX-License-Identifier: Apache-2.0
"""A router's DHCP server, which knows nothing of booting."""

from imagebuilder.boot.server import BootServer
from tests.faults.wire import other_dhcp


def spoil(boot_server: BootServer) -> None:
    """Start it in the place of ours."""
    other_dhcp(boot_server, "--dhcp-range=10.77.0.200,10.77.0.220,255.255.255.0,12h")
