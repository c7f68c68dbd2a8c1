# SPDX-License-Identifier: Apache-2.0
"""Whether users can log in, according to sshd, PAM and the tables of accounts; and the list of
access.conf(5), where sshd's PAM asks pam_access(8) for it.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.privileges import login
from imagebuilder.proof.privileges.sudo import SUDO, find_sudo
from imagebuilder.proof.reading.accounts import EXTRA, PASSWD, SHADOW, rows
from imagebuilder.proof.reading.commands import named_users
from imagebuilder.proof.reading.config import read_including
from imagebuilder.proof.reading.systemd import LOADED
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.say import prove_answered
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.login.sshd import prove_sshd_order, prove_sshd_programs
from imagebuilder.root import Root

DAY = 86_400
HOST_KEY = re.compile(
    r"^[ \t]*HostKey[\s=]+\S*_(rsa|ecdsa|ed25519)_key\s*$", re.MULTILINE | re.IGNORECASE
)
# By the kind of the key: how the names of its algorithms begin.
ALGORITHMS = {"rsa": ("rsa-sha2-", "ssh-rsa"), "ecdsa": ("ecdsa-",), "ed25519": ("ssh-ed25519",)}
NEVER = ("", "99999")
NOLOGIN, BASHRC = "/etc/nologin", ".bashrc"
SHOWN = 60  # characters of what a shell prints
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


def prove_accounts(subject: Subject) -> Findings:
    """Faults of accounts with a shell that log in by key: root, and those that overlays declare."""
    declared = {user.name for user in subject.image.users}
    users = sorted(name for name in subject.accounts.logins if name in declared | {"root"})
    yield from prove_shells(subject, users)
    yield from prove_ages(subject, users)
    if subject.root.lies(NOLOGIN):
        what = f"{NOLOGIN} is in the image: only root may log in"
        hint = "remove it; to close a node, create /run/nologin on it"
        yield fault(what, Evidence(NOLOGIN), hint=hint)
    if subject.root.lies(login.SSHD):
        yield from prove_sshd(subject, users)
    yield from prove_greetings(subject, users)
    yield from prove_sudo(subject, [name for name in users if name != "root"])


def prove_shells(subject: Subject, users: list[str]) -> Findings:
    """sshd refuses an account whose shell does not exist (auth.c, allowed_user())."""
    for name, account in subject.accounts.users.items():
        shell = account.shell
        host = subject.root.host(shell or "/bin/sh")
        if name in users and (
            host is None or not host.is_file() or not host.stat().st_mode & 0o111
        ):
            what = f"{name} cannot log in: the login shell {shell} is not in the image"
            hint = "install its package, or use another shell (overlay key users: shell:)"
            yield fault(what, Evidence(PASSWD, symbol=name, said=shell), hint=hint)


def prove_ages(subject: Subject, users: list[str]) -> Findings:
    """pam_unix refuses an expired account, even by key (shadow(5))."""
    today = subject.image.epoch // DAY
    for _, row in rows(subject.root, SHADOW, 9):
        name, _, changed, _, most, _, inactive, ends, *_ = row
        why = ""
        if changed == "0":
            why = "its password must be changed at the next login"
        elif ends.isdecimal() and whole(ends) <= today:
            why = "it has expired"
        elif is_limited(changed, most) and whole(changed) + whole(most) < today:
            why = "its password has expired" + (" and it is inactive" if inactive else "")
        if name in users and why:
            where = Evidence(SHADOW, symbol=name, said=f"{changed}:{most}:{inactive}:{ends}")
            hint = f"run chage in the script that made the account: chage -d {today} -M -1 -E -1"
            yield fault(f"{name} cannot log in, even by key: {why}", where, hint=hint)


def is_limited(changed: str, most: str) -> bool:
    """Whether a password, changed on a day, has to be changed again after some days."""
    return changed.isdecimal() and most.isdecimal() and most not in NEVER


def prove_sshd(subject: Subject, users: list[str]) -> Findings:
    """Without PAM, sshd treats an account whose password begins with ! as locked (auth.c)."""
    locked = {f[0] for _, f in rows(subject.root, SHADOW, 9) if f[1].startswith("!")}
    refused: dict[str, str] = {}
    answers = login.sshd_settings(subject)
    for settings in answers:
        name = settings.account
        groups = subject.accounts.groups_of(name)
        if name in users and (why := refusal(settings, groups)):
            refused[name] = why
        if name in users and name in locked and settings.values.get("usepam") == "no":
            what = f"sshd refuses {name}: without PAM (UsePAM no), a locked password (!) bars login"
            where = Evidence(place_of(subject, "usepam", "no"), said="UsePAM no")
            yield fault(what, where, hint="remove that line; keys work with PAM too")
        if name in users and settings.values.get("pubkeyauthentication") == "no":
            what = f"sshd accepts no key for {name}: PubkeyAuthentication no"
            where = Evidence(place_of(subject, "pubkeyauthentication", "no"))
            yield fault(what, where, hint="remove that line")
    yield from prove_host_keys(subject.root, answers)
    yield from prove_sshd_order(subject)
    yield from prove_sshd_programs(subject, answers)
    let_in = {one.account for one in answers if one.account in users} - set(refused)
    if refused and not let_in:
        why = next(iter(refused.values()))
        what = f"sshd lets nobody in ({', '.join(sorted(refused))}): {why}"
        hint = "name accounts of the image, or groups that they are in (overlay key users: groups:)"
        where = Evidence(place_of(subject, why.partition(" ")[0], ""), said=why)
        yield fault(what, where, hint=hint)


def prove_greetings(subject: Subject, users: list[str]) -> Findings:
    """Warnings of shells that print something before each command (SSH_SOURCE_BASHRC)."""
    for name, account in subject.accounts.users.items():
        home, shell = account.home, account.shell
        if name not in users or posixpath.basename(shell) != "bash":
            continue
        client = "SSH_CLIENT=203.0.113.1 1 22"
        done = subject.run(["env", "-i", f"HOME={home}", client, shell, "-c", ":"])
        unread = f"what a command of {name} over ssh prints first"
        yield from prove_answered(done, unread, Evidence(shell, said=f"{shell} -c :"))
        said = next(iter(done.stdout.strip().splitlines()), "")[:SHOWN]
        if done.status == 0 and said:
            what = f"every command of {name} over ssh prints {said!r} first: rsync and scp refuse "
            where = Evidence(f"{home}/{BASHRC}", said=said)
            hint = "print it only where the shell is interactive, or in .bash_profile"
            yield warning(f"{what}that", where, hint=hint)


def prove_unit_accounts(subject: Subject) -> Findings:
    """Faults of services that start as an account or a group that does not exist.

    Nodes do not run systemd-sysusers(8): their /etc is never older than their /usr.  The question
    `access` checks the options of services that overlays declare.
    """
    declared = {service.unit for service in subject.expectations.services}
    users, groups = subject.accounts.users.keys(), subject.accounts.groups.keys()
    for name, unit in subject.startup.booting():
        if unit.last("DynamicUser") == "yes" or unit.state != LOADED:
            continue
        wanted = [("User", unit.last("User"), users)]
        wanted += [("Group", unit.last("Group"), groups)]
        wanted += [(EXTRA, group, groups) for group in unit.words(EXTRA)]
        if name not in declared:
            commands = unit.commands.get("ExecStart", ())
            wanted += [("--user ", user, users) for user in named_users(commands)]
        for key, account, known in wanted:
            if account and account not in known and not re.search(r"^\d+$|%", account):
                said = f"{key}{'' if key.endswith(' ') else '='}{account}"
                what = f"{name} does not start: its {said} does not exist in the image"
                where = Evidence((unit.paths or (name,))[-1], "Service", said=said)
                hint = "declare it (overlay keys users:, groups:); sysusers.d is not read on nodes"
                yield fault(what, where, hint=hint)


def prove_sudo(subject: Subject, users: list[str]) -> Findings:
    """Faults of sudo's own file: who may become root by it cannot, or nobody can."""
    named = next((program for program in SUDO if subject.root.lies(program)), "")
    path = subject.root.resolve(named) if named else None
    info = subject.entries.get(path or "")
    may = {rule.name for rule in find_sudo(subject.root)} if info else set()
    if path is None or info is None or not may:
        return
    mode, owner = stat.S_IMODE(info.st_mode), subject.accounts.group_names.get(info.st_gid, "?")
    where = Evidence(path, said=f"mode {mode:04o}, owner {info.st_uid}, group {owner}")
    hint = "restore the owner and mode that its package ships (root, 4755)"
    if info.st_uid != 0 or not mode & stat.S_ISUID:
        what = f"sudo works for nobody: {path} must belong to root and be setuid (mode {mode:04o})"
        yield fault(what, where, hint=hint)
        return
    for name in users:
        groups = subject.accounts.groups_of(name)
        allowed = may & {"ALL", name, *(f"%{group}" for group in groups)}
        runs = mode & stat.S_IXOTH or (mode & stat.S_IXGRP and owner in groups)
        if allowed and not runs:
            what = f"{name} may become root with sudo, but cannot execute {path}: mode {mode:04o}, "
            yield fault(f"{what}group {owner}", where, hint=hint)


def prove_host_keys(root: Root, answers: Iterable[login.SshdSettings]) -> Findings:
    """A fault if sshd has no host key for any algorithm that it offers; it starts all the same."""
    texts = [root.text(path) for path in (login.CONFIG, *root.glob(f"{login.FOLDER}/*.conf"))]
    kinds = {kind for text in texts for kind in HOST_KEY.findall(text)}
    for settings in answers:
        offered = settings.values.get("hostkeyalgorithms", "")
        plain = [name for name in offered.split(",") if "-cert-" not in name]
        fits = any(name.startswith(ALGORITHMS[kind.lower()]) for kind in kinds for name in plain)
        if offered and kinds and not fits:
            path, line = login.said_in(root, "hostkeyalgorithms", "")
            keys = " and ".join(sorted(kinds))
            what = f"sshd refuses every client: its host key is {keys}, but HostKeyAlgorithms is "
            where = Evidence(f"{path}:{line}" if line else path, said=offered)
            hint = "remove that line, or add the algorithm of the host key"
            yield fault(what + offered, where, hint=hint)
            return


def place_of(subject: Subject, key: str, value: str) -> str:
    path, line = login.said_in(subject.root, key, value)
    return f"{path}:{line}" if line else path


def refusal(settings: login.SshdSettings, groups: frozenset[str]) -> str:
    """The list by which sshd refuses an account (auth.c, allowed_user()), "" if none."""
    for what, names in (("Users", {settings.account}), ("Groups", groups)):
        for key, lets_in in ((f"Deny{what}", False), (f"Allow{what}", True)):
            patterns = settings.values.get(key.lower(), "").split()
            if patterns and is_listed(names, patterns) != lets_in:
                return f"{key} {' '.join(patterns)}"
    return ""


def is_listed(names: Iterable[str], patterns: list[str]) -> bool:
    """Whether one of the names matches, ignoring the host in a pattern (USER@HOST)."""
    plain = [pattern.partition("@")[0] for pattern in patterns if not pattern.startswith("!")]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in plain)


@dataclass(frozen=True)
class AccessRule:
    """A line of the list: whether it lets in, for whom and from where."""

    lets_in: bool
    users: tuple[str, ...]
    origins: tuple[str, ...]
    where: Evidence


def prove_access_list(subject: Subject) -> Findings:
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
        yield fault(what, where, hint=hint)


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
                yield AccessRule(parts[0] == "+", users, origins, Evidence(path, said=line.strip()))


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
