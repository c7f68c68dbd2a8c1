# SPDX-License-Identifier: Apache-2.0
"""A DHCP server with one address, which another machine has."""

from imagebuilder.boot.server import BootServer
from tests.faults.wire import other_dhcp

NEVER = 4102444800


def spoil(boot_server: BootServer) -> None:
    """Start it in the place of ours."""
    lease = f"{NEVER} 52:54:00:00:00:99 10.77.0.200 * *\n"
    (boot_server.view.serve / "other.leases").write_text(lease)
    other_dhcp(boot_server, "--dhcp-range=10.77.0.200,10.77.0.200,255.255.255.0,12h")
