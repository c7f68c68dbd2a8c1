# SPDX-License-Identifier: Apache-2.0
"""A web server without the script that DHCP names."""

from imagebuilder.boot.stand import Stand


def spoil(stand: Stand) -> None:
    """Remove it."""
    (stand.view.http / "boot.ipxe").unlink()
