# SPDX-License-Identifier: Apache-2.0
"""A web server that sends clients for releases somewhere else."""

from imagebuilder.boot.server import BootServer
from tests.faults.wire import reload_nginx


def spoil(boot_server: BootServer) -> None:
    """Redirect kernels to a port that nobody has."""
    elsewhere = "location ~ vmlinuz$ { return 302 http://10.77.0.1:8088$uri; }"
    reload_nginx(
        boot_server, r"^( *)location /releases/ \{", rf"\1{elsewhere}\n\1location /releases/ {{"
    )
