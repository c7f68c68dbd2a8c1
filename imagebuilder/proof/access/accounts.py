# SPDX-License-Identifier: Apache-2.0
"""Accounts, groups and limits of a root: /etc/passwd, /etc/group, /etc/security."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.proof.numbers import whole
from imagebuilder.root import Root

LIMITS = "/etc/security"
# Where the ids are in a line.
IDS = {"/etc/passwd": (2, 3), "/etc/group": (2,)}
UNLIMITED = ("unlimited", "infinity", "-1")


@dataclass(frozen=True)
class Accounts:
    """The accounts: `users` to the id of the primary group, `groups` to their ids, and `members`:
    the accounts that /etc/group lists for each group.
    """

    users: Mapping[str, str]
    groups: Mapping[str, str]
    members: Mapping[str, frozenset[str]]

    def groups_of(self, user: str) -> frozenset[str]:
        """The groups that initgroups(3) gives to an account, including its primary group."""
        primary = self.users.get(user, "")
        return frozenset(
            name
            for name, number in self.groups.items()
            if number == primary or user in self.members[name]
        )

    def group(self, text: str) -> str:
        """The name of a group by name or id; "" if it does not exist."""
        if text in self.groups:
            return text
        return next((name for name, number in self.groups.items() if number == text), "")


def read_accounts(root: Root) -> Accounts:
    users = {f[0]: f[3] for f in fields(root, "/etc/passwd", 7)}
    listed = list(fields(root, "/etc/group", 4))
    members = {f[0]: frozenset(name for name in f[3].split(",") if name) for f in listed}
    return Accounts(users, {f[0]: f[2] for f in listed}, members)


def fields(root: Root, path: str, many: int) -> Iterator[list[str]]:
    """The lines of a table that have `many` fields (passwd(5), group(5))."""
    for line in root.text(path).splitlines():
        found = line.split(":")
        if len(found) == many and has_numbers(path, found):
            yield found


def has_numbers(path: str, line: Sequence[str]) -> bool:
    """Whether the ids in a line of passwd or group are numbers; the C library skips others."""
    return all(whole(line[place]) >= 0 for place in IDS.get(path, ()))


@dataclass(frozen=True)
class Limit:
    """One line of limits.conf(5) about memlock, and the file it is in."""

    domain: str
    kind: str
    value: str
    path: str

    @property
    def unlimited(self) -> bool:
        return self.value in UNLIMITED


def read_memlock(root: Root) -> list[Limit]:
    """The lines about memlock in the order pam_limits(8) reads them."""
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
            if len(words) == 4 and words[2] == "memlock":
                found.append(Limit(words[0], words[1], words[3], path))
    return found


def memlock_of(user: str, accounts: Accounts, limits: list[Limit]) -> dict[str, Limit]:
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
