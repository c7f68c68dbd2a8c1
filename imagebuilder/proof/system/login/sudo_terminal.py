# SPDX-License-Identifier: Apache-2.0
"""Services that call sudo where sudo wants a terminal: `requiretty` of sudoers(5)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.privileges.sudo import SudoersLine, read_sudoers
from imagebuilder.proof.reading.scripts import MOST_READ, SHELL, first_line, runs
from imagebuilder.proof.reading.shell import parse_shell
from imagebuilder.proof.reading.systemd import said_in
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

SUDO = "sudo"
# Defaults, and those for accounts, hosts, commands or targets.
DEFAULTS = re.compile(r"Defaults(?P<mark>[:@>!])?[ \t]*(?P<rest>.*)")
WANTS = re.compile(r"(?<![\w!])(?:(?P<off>!)[ \t]*)?requiretty\b")
# Values of StandardInput= with which a service has a terminal.
TERMINALS = ("tty", "tty-force", "tty-fail")


def prove_terminal(subject: Subject) -> Iterator[Finding]:
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
            yield SAY.warning(what, where, said_in(subject.root, unit, key), hint=hint)


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
