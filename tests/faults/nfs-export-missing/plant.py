# SPDX-License-Identifier: Apache-2.0
"""An NFS server that exports other things."""

from imagebuilder.boot.stand import VIEW, Stand
from tests.faults.wire import change_config, reload_ganesha


def spoil(stand: Stand) -> None:
    """Export the web server's folder in the place of the roots."""
    change_config(stand, "ganesha.conf", "Export_Id = 1;", "Export_Id = 2;")
    reload_ganesha(stand, f'"{VIEW}/roots"', f'"{VIEW}/http"')
