# SPDX-License-Identifier: Apache-2.0
"""POSIX ACLs of folders, acl(5): whom they let write beside the owner and everybody.

With such a list, the group's bits of the mode are only its mask.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from pathlib import Path

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
# linux/posix_acl_xattr.h: a version, then tag, permissions and id of each entry.
VERSION, ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
USER, OWN_GROUP, GROUP, MASK = 0x02, 0x04, 0x08, 0x10
WRITE = 2
ABSENT = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT)


@dataclass(frozen=True)
class AclWriters:
    """The users and groups that a list names and lets write; `own_group` is the folder's."""

    users: tuple[int, ...]
    groups: tuple[int, ...]
    own_group: bool


def read_writers(folder: Path, name: str = ACCESS) -> AclWriters | None:
    """Whom a list of a folder lets write; None without one.  Raises OSError."""
    try:
        value = os.getxattr(folder, name)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    entries = list(ENTRY.iter_unpack(value[VERSION.size :]))
    masked = all(perm & WRITE for tag, perm, _ in entries if tag == MASK)
    writing = [(tag, number) for tag, perm, number in entries if perm & WRITE and masked]
    return AclWriters(
        users=tuple(number for tag, number in writing if tag == USER),
        groups=tuple(number for tag, number in writing if tag == GROUP),
        own_group=any(tag == OWN_GROUP for tag, _ in writing),
    )


def names_writers(folder: Path) -> bool:
    """Whether a list of a folder, or one that is inherited, lets others than root write."""
    found = (read_writers(folder, name) for name in (ACCESS, DEFAULT))
    return any(any((*each.users, *each.groups)) for each in found if each)
