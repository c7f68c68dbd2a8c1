# SPDX-License-Identifier: Apache-2.0
"""Accounts and groups of a root, /etc/passwd and /etc/group; whom a service runs as; and the limits
that pam_limits(8) gives to accounts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.reading.units import UnitSettings
from imagebuilder.root import Root

PASSWD, SHADOW, GROUP = "/etc/passwd", "/etc/shadow", "/etc/group"
# Where the ids are in a line.
IDS = {PASSWD: (2, 3), GROUP: (2,)}
# The last two are shells of accounts of Enterprise Linux, and do nothing for others than root.
NO_SHELLS = ("nologin", "false", "sync", "true", "halt", "shutdown")
EXTRA = "SupplementaryGroups"
NOBODY = -1
LIMITS = "/etc/security"
UNLIMITED = ("unlimited", "infinity", "-1")


def rows(root: Root, path: str, fewest: int) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table with their numbers: passwd(5), shadow(5), group(5).

    Like the C library, skips those with too few fields, and with ids that are no numbers.
    """
    for number, line in enumerate(root.text(path).splitlines(), 1):
        fields = line.split(":")
        are_ids = all(whole(field) >= 0 for n, field in enumerate(fields) if n in IDS.get(path, ()))
        if len(fields) >= fewest and are_ids:
            yield number, fields


@dataclass(frozen=True)
class PasswdLine:
    """A line of passwd(5)."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True)
class Accounts:
    """The accounts; `groups` to their ids, and `members`: the accounts that /etc/group lists for
    each group.  Of several lines with one name, the first counts.
    """

    users: Mapping[str, PasswdLine]
    groups: Mapping[str, int]
    members: Mapping[str, frozenset[str]]

    @cached_property
    def logins(self) -> Mapping[str, str]:
        """The home of each account that has a shell."""
        shells = ((each, each.shell.rpartition("/")[2]) for each in self.users.values())
        return {each.name: each.home for each, shell in shells if shell not in NO_SHELLS}

    @cached_property
    def group_names(self) -> Mapping[int, str]:
        return {number: name for name, number in reversed([*self.groups.items()])}

    def groups_of(self, user: str) -> frozenset[str]:
        """The groups that initgroups(3) gives to an account, including its primary group."""
        primary = self.users[user].gid if user in self.users else NOBODY
        return frozenset(
            name
            for name, number in self.groups.items()
            if number == primary or user in self.members[name]
        )

    def group(self, text: str) -> str:
        """The name of a group by name or id; "" if it does not exist."""
        return text if text in self.groups else self.group_names.get(whole(text), "")

    def groups_of_unit(self, unit: UnitSettings, user: str) -> frozenset[str]:
        """The groups of a service that runs as an account."""
        named = (self.group(group) for group in (unit.last("Group"), *unit.words(EXTRA)))
        return self.groups_of(user) | {group for group in named if group}


def read_accounts(root: Root) -> Accounts:
    users: dict[str, PasswdLine] = {}
    groups: dict[str, int] = {}
    members: dict[str, frozenset[str]] = {}
    for _, (name, _, uid, gid, _, home, shell, *_) in rows(root, PASSWD, 7):
        users.setdefault(name, PasswdLine(name, whole(uid), whole(gid), home, shell))
    for _, (name, _, gid, listed, *_) in rows(root, GROUP, 4):
        groups.setdefault(name, whole(gid))
        members.setdefault(name, frozenset(filter(None, listed.split(","))))
    return Accounts(users, groups, members)


@dataclass(frozen=True)
class UnitAccount:
    """Who a service is: the id of its account, and those of its groups."""

    name: str
    uid: int
    gids: frozenset[int]

    def may(self, info: os.stat_result, bit: int) -> bool:
        """Whether it may read (4), write (2) or enter (1) what has this mode and these owners."""
        mode = stat.S_IMODE(info.st_mode)
        if info.st_uid == self.uid:
            return bool(mode >> 6 & bit)
        return bool((mode >> 3 if info.st_gid in self.gids else mode) & bit)


def account_of(unit: UnitSettings, accounts: Accounts) -> UnitAccount | None:
    """The account of a service; None for root, and for one that is not in the image.

    A dynamic account, which has no name, owns no file.
    """
    name, is_dynamic = unit.last("User"), unit.last("DynamicUser") == "yes"
    uid = accounts.users[name].uid if name in accounts.users else NOBODY
    if uid == 0 or (uid == NOBODY and not is_dynamic):
        return None
    groups = accounts.groups_of_unit(unit, name)
    return UnitAccount(name, uid, frozenset(accounts.groups[group] for group in groups))


@dataclass(frozen=True)
class Limit:
    """One line of limits.conf(5), without its item, and the file it is in."""

    domain: str
    kind: str
    value: str
    path: str

    @property
    def unlimited(self) -> bool:
        return self.value in UNLIMITED


def read_limits(root: Root, item: str) -> list[Limit]:
    """The lines about an item, such as memlock, in the order pam_limits(8) reads them."""
    paths = [f"{LIMITS}/limits.conf"]
    paths += [
        f"{LIMITS}/limits.d/{name}"
        for name in root.names(f"{LIMITS}/limits.d")
        if name.endswith(".conf")
    ]
    found = []
    for path in paths:
        for line in root.text(path).splitlines():
            words = line.partition("#")[0].split()
            if len(words) == 4 and words[2] == item:
                found.append(Limit(words[0], words[1], words[3], path))
    return found


def limits_of(user: str, accounts: Accounts, limits: list[Limit]) -> dict[str, Limit]:
    """The `soft` and the `hard` limit of an account, each absent if not set.

    A line for the account overrides one for a group, and that one for everybody; of equal ones the
    last counts.
    """
    groups = {f"@{name}" for name in accounts.groups_of(user)}
    found: dict[str, Limit] = {}
    for domains in ({"*"}, groups, {user}):
        for limit in limits:
            if limit.domain in domains:
                for kind in ("soft", "hard") if limit.kind == "-" else (limit.kind,):
                    found[kind] = limit
    return found
