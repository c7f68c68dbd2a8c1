# SPDX-License-Identifier: Apache-2.0
"""An NFS server that is open to another network."""

from imagebuilder.boot.stand import Stand
from tests.faults.wire import reload_ganesha


def spoil(stand: Stand) -> None:
    """Export to a network that we are not."""
    reload_ganesha(stand, r"Clients = .*;", "Clients = 192.0.2.0/24;")
