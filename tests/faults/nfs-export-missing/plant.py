# SPDX-License-Identifier: Apache-2.0
"""An NFS server that exports other things."""

from imagebuilder.boot.server import VIEW, BootServer
from tests.faults.wire import change_config, reload_ganesha


def spoil(boot_server: BootServer) -> None:
    """Export the web server's folder in the place of the roots."""
    change_config(boot_server, "ganesha.conf", "Export_Id = 1;", "Export_Id = 2;")
    reload_ganesha(boot_server, f'"{VIEW}/roots"', f'"{VIEW}/http"')
