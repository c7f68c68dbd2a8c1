# SPDX-License-Identifier: Apache-2.0
"""An NFS server that squashes root."""

from imagebuilder.boot.server import BootServer
from tests.faults.wire import reload_ganesha


def spoil(boot_server: BootServer) -> None:
    """Export so, as servers do unless told otherwise."""
    reload_ganesha(boot_server, "No_Root_Squash", "Root_Squash")
