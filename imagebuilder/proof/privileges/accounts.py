# SPDX-License-Identifier: Apache-2.0
"""Accounts that are root or equivalent to root: passwd(5), shadow(5), group(5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from imagebuilder.proof.access.accounts import has_numbers
from imagebuilder.proof.numbers import whole
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.root import Root

PASSWD, SHADOW, GROUP = "/etc/passwd", "/etc/shadow", "/etc/group"
# Members can become root: by sudo, the disk, memory, the hashes, a container or a virtual machine.
AS_GOOD_AS_ROOT = frozenset(
    ("root", "sudo", "wheel", "admin", "adm-root", "disk", "shadow", "kmem", "docker", "lxd",
     "incus-admin", "libvirt", "libvirt-qemu", "microk8s")
)  # fmt: skip
NO_SHELLS = ("nologin", "false", "sync", "true")


def rows(root: Root, path: str, fewest: int) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table, with their numbers."""
    for number, line in enumerate(root.text(path).splitlines(), 1):
        fields = line.split(":")
        if len(fields) >= fewest and has_numbers(path, fields):
            yield number, fields


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


def find_logins(root: Root) -> dict[str, str]:
    """The home of each account that has a shell."""
    found = (fields for _, fields in rows(root, PASSWD, 7))
    return {
        name: home
        for name, _, _, _, _, home, shell, *_ in found
        if shell.rpartition("/")[2] not in NO_SHELLS
    }


def group_names(root: Root) -> dict[int, str]:
    return {whole(f[2]): f[0] for _, f in rows(root, GROUP, 4)}
