# SPDX-License-Identifier: Apache-2.0
"""A TFTP server without the file that DHCP names."""

from imagebuilder.boot.server import BootServer


def spoil(boot_server: BootServer) -> None:
    """Remove every EFI binary."""
    for path in boot_server.view.tftp.glob("*.efi"):
        path.unlink()
