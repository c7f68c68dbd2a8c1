# SPDX-License-Identifier: Apache-2.0
"""What sessions have: limits of memory and processors, of open files, and of the life of shared
memory; and the terminal that sudo wants, which services lack (`requiretty` of sudoers(5)).

RemoveIPC=, by default yes, removes what an account has in /dev/shm when its last session ends;
system accounts are left out (logind.conf(5); systemd/systemd #2039, vllm-project/vllm #54259).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.privileges.sudo import SudoersLine, read_sudoers
from imagebuilder.proof.reading.accounts import limits_of, read_limits
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.parameters import read_sysctl
from imagebuilder.proof.reading.scripts import MOST_READ, SHELL, first_line, runs, site_services
from imagebuilder.proof.reading.shell import parse_shell
from imagebuilder.proof.reading.systemd import last_lines, said_in
from imagebuilder.proof.reading.texts import size_of, whole
from imagebuilder.proof.reading.units import FOLDERS, is_below, unit_paths
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine
from imagebuilder.root import Root

# The slices of all users together, and of each.
FILES = ("user.slice", "user.slice.d/*.conf", "user-.slice.d/*.conf", "user@.service.d/*.conf")
LIMIT = re.compile(
    r"^[ \t]*(?P<said>(?P<key>MemoryMax|MemoryHigh|CPUQuota|TasksMax|AllowedCPUs)\s*=\s*"
    r"(?P<value>\S+))\s*$",
    re.MULTILINE,
)
# What a program that computes may well need; shares of a node are large enough.
LEAST_MEMORY, LEAST_PERCENT, LEAST_TASKS = 16 << 30, 800, 4096
ITEM, MOST = "nofile", "fs.nr_open"
CONFIG, KEY = "systemd/logind.conf", "RemoveIPC"
LOGIND, SESSION = "/usr/lib/systemd/systemd-logind", "pam_systemd.so"
# Where logins over ssh and on a console are told to logind, in Debian and in Fedora.
STACKS = ("sshd", "login", "common-session", "system-auth", "password-auth", "postlogin")
MODULES = (f"/usr/lib/*/security/{SESSION}", f"/usr/lib*/security/{SESSION}")
# The last system account when systemd was built for Debian and Fedora.
LAST_SYSTEM = 999
SUDO = "sudo"
# Defaults, and those for accounts, hosts, commands or targets.
DEFAULTS = re.compile(r"Defaults(?P<mark>[:@>!])?[ \t]*(?P<rest>.*)")
WANTS = re.compile(r"(?<![\w!])(?:(?P<off>!)[ \t]*)?requiretty\b")
# Values of StandardInput= with which a service has a terminal.
TERMINALS = ("tty", "tty-force", "tty-fail")


def prove_session_limits(subject: Subject) -> Findings:
    root = subject.root
    for path in root.glob(*(f"{folder}/{name}" for folder in FOLDERS for name in FILES)):
        found = [] if path in subject.shipped else list(LIMIT.finditer(root.text(path)))
        said = [match["said"] for match in found if is_low(match["key"], match["value"])]
        if said:
            what = f"what users run over ssh is limited by {' and '.join(said)}: programs "
            what += "that compute may need more"
            where = (Evidence(path, said=each) for each in said)
            yield warning(what, *where, hint="remove them, unless many users share a node")


def is_low(key: str, value: str) -> bool:
    if key == "CPUQuota":
        return whole(value.rstrip("%")) < LEAST_PERCENT if value[:-1].isdecimal() else False
    if key == "AllowedCPUs":
        return True
    least = LEAST_TASKS if key == "TasksMax" else LEAST_MEMORY
    return 0 <= size_of(value) < least


def prove_open_files(subject: Subject) -> Findings:
    """Warnings, one for each limit: setrlimit(2) fails with EPERM, for root as well.

    Debian's pam_limits goes on without the limit (tried with 1.7), that of Linux-PAM refuses the
    session.  systemd raises fs.nr_open when it starts, so only a setting lowers it, and caps its
    own limits by it.
    """
    most = read_sysctl(subject).get(MOST)
    if most is None or not most.value.isdecimal():
        return
    lines = read_limits(subject.root, ITEM)
    refused: dict[Evidence, list[str]] = {}
    for user in sorted(subject.accounts.logins):
        own = lines if user != "root" else [line for line in lines if line.domain != "*"]
        limit = limits_of(user, subject.accounts, own).get("hard")
        if limit and whole(limit.value) > whole(most.value):
            said = f"{limit.domain} {limit.kind} {ITEM} {limit.value}"
            refused.setdefault(Evidence(limit.path, said=said), []).append(user)
    for where, users in refused.items():
        what = f"{where.said} of {where.path} is more than the kernel allows ({MOST} = "
        what += f"{most.value}): {some(users)} cannot have so many open files, and PAM may refuse "
        what += "the login"
        hint = f"remove {MOST}, which systemd raises by itself, or lower the limit"
        yield warning(what, where, most.where, hint=hint)


def prove_shared_memory(subject: Subject) -> Findings:
    """A warning; by default only of engines in Python, whose processes share tensors."""
    root = subject.root
    line = last_lines(subject, CONFIG).get(KEY)
    is_off = line is not None and is_false(line.value)
    if is_off or not root.is_file(LOGIND) or not has_sessions(root):
        return
    sharing = {
        engine.unit
        for engine in subject.expectations.engines
        if find_engine(subject.engines, engine.engine).model.platform
    }
    names = {
        service.name: service.unit.last("User")
        for service in site_services(subject)
        if (line or service.name in sharing) and is_removed(subject, service.unit.last("User"))
        and not any(is_below("/dev/shm", p.target)
                    for p in unit_paths(service.unit, "TemporaryFileSystem"))
    }  # fmt: skip
    if names:
        user = next(iter(names.values()))
        what = f"{KEY}=yes takes the shared memory from {some(names)} whenever the last session of "
        what += f"{user} ends, as whom people log in too"
        where = line.evidence if line else Evidence(f"/etc/{CONFIG}", said=f"{KEY}=yes (default)")
        hint = f"set {KEY}=no in /etc/{CONFIG}.d, or run the service as a system account"
        yield warning(what, where, hint=hint)


def has_sessions(root: Root) -> bool:
    """Whether a login tells logind of its session (pam_systemd(8))."""
    lines = (
        line.split() for name in STACKS for line in root.text(f"/etc/pam.d/{name}").splitlines()
    )
    return any(map(root.is_file, root.glob(*MODULES))) and any(
        words and words[0].lstrip("-") == "session" and any(SESSION in word for word in words)
        for words in lines
    )


def is_removed(subject: Subject, user: str) -> bool:
    """Whether people log in as an account that is no system account, and that does not linger."""
    account = subject.accounts.users.get(user)
    if account is None or account.uid <= LAST_SYSTEM or user not in subject.accounts.logins:
        return False
    return not subject.root.lies(f"/var/lib/systemd/linger/{user}")


def prove_terminal(subject: Subject) -> Findings:
    wanting, excepted = find_wanting(subject.root)
    for unit in subject.startup.starting() if wanting else ():
        account = unit.last("User") or "root"
        line = wanting.get(account) or wanting.get("" if account not in excepted else account)
        if line is None or unit.last("StandardInput") in TERMINALS:
            continue
        keys = (key for key, words in unit.started() if is_sudo(subject.root, words))
        if key := next(keys, ""):
            what = f"sudo refuses {unit.name}, which has no terminal: requiretty of {line.path}"
            hint = "remove requiretty, or let the service run as the account that it needs (User=)"
            where = Evidence(f"{line.path}:{line.number}", said=line.text)
            yield warning(what, where, said_in(subject.root, unit, key), hint=hint)


def find_wanting(root: Root) -> tuple[dict[str, SudoersLine], set[str]]:
    """The lines that want a terminal, by account, "" for everybody; and the accounts of which
    others say that they need none.  Nothing where that depends on a command or a host.
    """
    found: dict[str, SudoersLine] = {}
    excepted: set[str] = set()
    for line in read_sudoers(root):
        defaults = DEFAULTS.match(line.text)
        wants = list(WANTS.finditer(defaults["rest"])) if defaults else []
        if defaults is None or not wants:
            continue
        is_off, mark = bool(wants[-1]["off"]), defaults["mark"]
        if mark not in (None, ":"):
            if is_off:
                return {}, set()
            continue
        for account in defaults["rest"].split()[0].split(",") if mark else [""]:
            found.pop(account, None)
            excepted.discard(account)
            if is_off:
                excepted.add(account)
            else:
                found[account] = line
    return found, excepted


def is_sudo(root: Root, words: Sequence[str]) -> bool:
    """Whether a command line, or the shell script that it runs, starts sudo."""
    if posixpath.basename(words[0]) == SUDO:
        return True
    texts: list[bytes] = []
    if runs(SHELL, words):
        texts += [word.encode() for word in words[1:] if " " in word]
        texts += [bytes((root.map(word) or b"")[:MOST_READ]) for word in words[1:]
                  if word.startswith("/") and root.is_file(word)]  # fmt: skip
    elif words[0].startswith("/") and root.is_file(words[0]):
        content = root.map(words[0])
        texts += [bytes((content or b"")[:MOST_READ])] if runs(SHELL, first_line(content)) else []
    scripts = filter(None, map(parse_shell, texts))
    return any(posixpath.basename(each.name) == SUDO for s in scripts for each in s.commands)
