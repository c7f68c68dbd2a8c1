# SPDX-License-Identifier: Apache-2.0
"""An NFS server that squashes root."""

from imagebuilder.boot.stand import Stand
from tests.faults.wire import reload_ganesha


def spoil(stand: Stand) -> None:
    """Export so, as servers do unless told otherwise."""
    reload_ganesha(stand, "No_Root_Squash", "Root_Squash")
