# SPDX-License-Identifier: Apache-2.0
"""An NFS server that is open to another network."""

from imagebuilder.boot.server import BootServer
from tests.faults.wire import reload_ganesha


def spoil(boot_server: BootServer) -> None:
    """Export to a network that we are not."""
    reload_ganesha(boot_server, r"Clients = .*;", "Clients = 192.0.2.0/24;")
