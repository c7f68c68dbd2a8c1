# SPDX-License-Identifier: Apache-2.0
"""A web server without the script that DHCP names."""

from imagebuilder.boot.server import BootServer


def spoil(boot_server: BootServer) -> None:
    """Remove it."""
    (boot_server.view.http / "boot.ipxe").unlink()
