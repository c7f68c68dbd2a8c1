# SPDX-License-Identifier: Apache-2.0
"""A file that one user more may read and write."""

import os
import struct

from tests.faults.site import Site

# linux/posix_acl_xattr.h: version 2; tag, permissions and id of each entry.
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY = 0xFFFFFFFF
ENTRIES = ((OWNER, 6, NOBODY), (USER, 6, 1000), (GROUP, 4, NOBODY), (MASK, 6, NOBODY),
           (OTHERS, 4, NOBODY))  # fmt: skip


def plant(site: Site) -> None:
    """Make it."""
    site.write("/etc/agent.conf", "quiet = yes\n")
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in ENTRIES)
    os.setxattr(site.path("/etc/agent.conf"), "system.posix_acl_access", value)
