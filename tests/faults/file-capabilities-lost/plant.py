# SPDX-License-Identifier: Apache-2.0
"""A program that may open raw sockets."""

import os
import struct

from tests.faults.site import Site

# linux/capability.h: version 2 with the effective bit, CAP_NET_RAW permitted.
NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)


def plant(site: Site) -> None:
    """Make it."""
    site.write("/usr/local/bin/capture", "#!/bin/sh\n", 0o755)
    os.setxattr(site.path("/usr/local/bin/capture"), "security.capability", NET_RAW)
