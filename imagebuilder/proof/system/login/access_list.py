# SPDX-License-Identifier: Apache-2.0
"""Who may log in by pam_access(8): the list of access.conf(5), where sshd's PAM asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import read_including
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

PAM = "/etc/pam.d"
ASKS = re.compile(
    r"[ \t]*account\s+(required|requisite|\[[^\]\n]*default=(bad|die)[^\]\n]*\])\s+"
    r"(\S*/)?pam_access\.so\b(?P<arguments>.*)"
)
INCLUDES = re.compile(r"[ \t]*(?:@include|account\s+(?:include|substack))\s+(?P<name>[\w-]+)")
OTHER_FILE = re.compile(r"\baccessfile=(?P<path>/\S+)")
LISTS = ("/etc/security/access.conf", "/etc/security/access.d/*.conf")
EXCEPT = "EXCEPT"
# Origins that no login over the network has.
HERE = re.compile(r"LOCAL|tty\S*|cron|crond|:\S*")


@dataclass(frozen=True)
class AccessRule:
    """A line of the list: whether it lets in, for whom and from where."""

    lets_in: bool
    users: tuple[str, ...]
    origins: tuple[str, ...]
    where: Evidence


def prove_access_list(subject: Subject) -> Iterator[Finding]:
    """A fault if the list lets nobody in who is to log in."""
    root = subject.root
    asked = next(asking(root, "sshd"), None)
    if asked is None:
        return
    rules = list(read_rules(root, OTHER_FILE.search(asked)))
    declared = {user.name for user in subject.image.users}
    users = sorted(name for name in subject.accounts.logins if name in declared | {"root"})
    accounts = subject.accounts
    refused = [refusing(rules, user, accounts.groups_of(user)) for user in users]
    if users and all(refused):
        what = f"nobody may log in over ssh ({', '.join(users)}): pam_access lets none of them in "
        what += "from the network"
        where = next(rule.where for rule in refused if rule)
        hint = "add `+:root compute:ALL` before it, or remove pam_access.so from PAM for sshd"
        yield SAY.fault(what, where, hint=hint)


def asking(root: Root, name: str) -> Iterator[str]:
    """The arguments of pam_access in a service's stack and in what it includes."""

    def lines_of(path: str) -> list[str]:
        return root.text(path).replace("\\\n", " ").splitlines()

    def included(line: str) -> list[str] | None:
        match = INCLUDES.match(line)
        return [f"{PAM}/{match['name']}"] if match else None

    for line in read_including(f"{PAM}/{name}", lines_of, included):
        if match := ASKS.match(line):
            yield match["arguments"]


def read_rules(root: Root, other: re.Match[str] | None) -> Iterator[AccessRule]:
    for path in root.glob(other["path"]) if other else root.glob(*LISTS):
        for line in root.text(path).splitlines():
            parts = [part.strip() for part in line.partition("#")[0].split(":", 2)]
            if len(parts) == 3 and parts[0] in ("+", "-"):
                users, origins = (tuple(re.split(r"[\s,]+", part)) for part in parts[1:])
                where = Evidence(path, said=line.strip())
                yield AccessRule(parts[0] == "+", users, origins, where)


def refusing(rules: list[AccessRule], user: str, groups: frozenset[str]) -> AccessRule | None:
    """The rule that refuses an account wherever it comes from; None if it may get in."""
    for rule in rules:
        if not names(rule.users, user, groups) or all(map(HERE.fullmatch, rule.origins)):
            continue
        # What lets in from some machines is meant to; what refuses some says nothing of others.
        if rule.lets_in:
            return None
        first, *others = rule.origins
        if first == "ALL" and all(word == EXCEPT or HERE.fullmatch(word) for word in others):
            return rule
    return None


def names(listed: tuple[str, ...], user: str, groups: frozenset[str]) -> bool:
    """Whether a list of users has an account: by its name, a group, ALL, and not after EXCEPT.

    `A EXCEPT B EXCEPT C` has those of A that are not in `B EXCEPT C`.
    """
    meant = {"ALL", user, *(f"({group})" for group in groups), *groups}
    lists: list[list[str]] = [[]]
    for word in listed:
        lists.append([]) if word == EXCEPT else lists[-1].append(word)
    found = False
    for those in reversed(lists):
        # A group of users of NIS, and a user on one machine: not known here.
        unknown = any("@" in word for word in those)
        found = (unknown or bool(meant & set(those))) and not found
    return found
