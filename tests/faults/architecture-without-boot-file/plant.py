# SPDX-License-Identifier: Apache-2.0
"""A TFTP server without the file that DHCP names."""

from imagebuilder.boot.stand import Stand


def spoil(stand: Stand) -> None:
    """Remove every EFI binary."""
    for path in stand.view.tftp.glob("*.efi"):
        path.unlink()
