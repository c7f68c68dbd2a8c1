# SPDX-License-Identifier: Apache-2.0
"""The limits that pam_limits(8) gives to accounts: /etc/security."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.proof.reading.accounts import Accounts
from imagebuilder.root import Root

LIMITS = "/etc/security"
UNLIMITED = ("unlimited", "infinity", "-1")


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
