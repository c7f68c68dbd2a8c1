# SPDX-License-Identifier: Apache-2.0
"""Accounts that are root or equivalent to root: passwd(5), shadow(5), group(5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.accounts import GROUP, PASSWD, SHADOW, rows
from imagebuilder.root import Root

# Members can become root: by sudo, the disk, memory, the hashes, a container or a virtual machine.
AS_GOOD_AS_ROOT = frozenset(
    ("root", "sudo", "wheel", "admin", "adm-root", "disk", "shadow", "kmem", "docker", "lxd",
     "incus-admin", "libvirt", "libvirt-qemu", "microk8s")
)  # fmt: skip


def find_accounts(root: Root, declared: Mapping[str, frozenset[str]]) -> Iterator[Privilege]:
    """Ways to become root by the tables of accounts.

    `declared` are the groups that overlays declare for each of their users.
    """
    for line, (name, password, uid, *_) in rows(root, PASSWD, 7):
        if uid == "0" and name != "root":
            yield Privilege(Opening.ROOT_ACCOUNTS, name, PASSWD, f"{name} has uid 0", line=line)
        if password == "":
            yield Privilege(
                Opening.NEVER, name, PASSWD, f"{name} logs in without a password", line=line
            )
    for line, (name, password, *_) in rows(root, SHADOW, 2):
        if password == "":
            yield Privilege(
                Opening.NEVER, name, SHADOW, f"{name} logs in without a password", line=line
            )
    for line, (group, _, _, members, *_) in rows(root, GROUP, 4):
        for user in filter(None, members.split(",")):
            if group in AS_GOOD_AS_ROOT and user != "root" and group not in declared.get(user, ()):
                gains = f"{user} is in the group {group}, whose members can become root"
                yield Privilege(Opening.GROUPS, group, GROUP, gains, line=line)
