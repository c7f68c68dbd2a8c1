# SPDX-License-Identifier: Apache-2.0
"""A DHCP server with one address, which another machine has."""

from imagebuilder.boot.stand import Stand
from tests.faults.wire import other_dhcp

NEVER = 4102444800


def spoil(stand: Stand) -> None:
    """Start it in the place of ours."""
    lease = f"{NEVER} 52:54:00:00:00:99 10.77.0.200 * *\n"
    (stand.view.serve / "other.leases").write_text(lease)
    other_dhcp(stand, "--dhcp-range=10.77.0.200,10.77.0.200,255.255.255.0,12h")
