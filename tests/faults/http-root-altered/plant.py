# SPDX-License-Identifier: Apache-2.0
"""Bytes of the packed root that are others, as a bad disk or memory makes them."""

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Invert some in the middle."""
    data = bytearray(site.path("release/root.squashfs").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 512] = bytes(byte ^ 0xFF for byte in data[middle : middle + 512])
    site.write("release/root.squashfs", bytes(data))
