# SPDX-License-Identifier: Apache-2.0
"""A module whose vermagic is that of another kernel, as one that DKMS built for the running one."""

import lzma

from tests.faults.site import Site

MODULE = "/usr/lib/modules/{kernel}/kernel/drivers/net/dummy.ko.xz"


def plant(site: Site) -> None:
    """Write another release of the same length into the module."""
    module = lzma.decompress(site.path(MODULE).read_bytes())
    ours = b"vermagic=" + site.kernel.encode()
    if ours not in module:
        raise ValueError(f"{MODULE} does not name its kernel")
    other = (b"vermagic=6.1.0-49-amd64" + b"x" * len(ours))[: len(ours)]
    site.write(MODULE, lzma.compress(module.replace(ours, other), check=lzma.CHECK_CRC32))
