# SPDX-License-Identifier: Apache-2.0
"""A kernel that says it is another release."""

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Change the release in the head of the kernel."""
    data = site.path("release/vmlinuz").read_bytes()
    ours = site.kernel.encode()
    other = b"6.1.0-49-amd64" + b" " * (len(ours) - 14)
    site.write("release/vmlinuz", data[:0x10000].replace(ours, other) + data[0x10000:])
