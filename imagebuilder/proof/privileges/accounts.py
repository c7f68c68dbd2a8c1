# SPDX-License-Identifier: Apache-2.0
"""Accounts that are root or equivalent to root, passwd(5), shadow(5), group(5), and shells on a
console without a log-in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.accounts import GROUP, PASSWD, SHADOW, rows
from imagebuilder.proof.reading.parameters import kernel_words
from imagebuilder.proof.reading.units import FOLDERS
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# Members can become root: by sudo, the disk, memory, the hashes, a container or a virtual machine.
AS_GOOD_AS_ROOT = frozenset(
    ("root", "sudo", "wheel", "admin", "adm-root", "disk", "shadow", "kmem", "docker", "lxd",
     "incus-admin", "libvirt", "libvirt-qemu", "microk8s")
)  # fmt: skip
DEBUG = "debug-shell.service"
WANTS = (".wants", ".requires", ".upholds")
# agetty(8), mingetty(8), login(1).
AUTOLOGIN = re.compile(
    r"^[ \t]*Exec\w+\s*=.*(getty\b.*(--autologin|\s-a)[\s=]|\blogin\s+(\S+\s+)*-f)", re.MULTILINE
)
ON_A_TERMINAL = re.compile(r"^[ \t]*StandardInput\s*=\s*tty", re.MULTILINE)
ROOT_SHELL = re.compile(
    r"^[ \t]*ExecStart\s*=[-@:+!]*(/usr)?/bin/(ba|da|z|k)?sh(\s+-l)?\s*$", re.MULTILINE
)
WORDS = ("systemd.debug_shell", "rd.systemd.debug_shell")


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


def find_consoles(subject: Subject) -> Iterator[Privilege]:
    root = subject.root
    for path in unit_files(subject):
        text = root.text(path)
        if AUTOLOGIN.search(text):
            line = line_at(text, AUTOLOGIN)
            gains = f"{path} logs a user in on a console without a password"
            yield Privilege(Opening.CONSOLES, path, path, gains, line=line)
        if ON_A_TERMINAL.search(text) and ROOT_SHELL.search(text):
            gains = f"{path} is a root shell on a console without a password"
            if not path.endswith(DEBUG):
                yield Privilege(Opening.CONSOLES, path, path, gains, line=line_at(text, ROOT_SHELL))
    for link in wanted(subject, DEBUG):
        gains = f"{DEBUG} is a root shell on tty9 without a password"
        yield Privilege(Opening.CONSOLES, link, link, gains)
    for word in kernel_words(subject.cmdline):
        if word.key in WORDS and word.on:
            gains = f"the kernel's command line has {word.text}: a root shell without a password"
            yield Privilege(Opening.NEVER, word.text, "kernel command line", gains)


def unit_files(subject: Subject) -> Iterator[str]:
    """Every unit and drop-in that is a file."""
    root = subject.root
    for folder in FOLDERS:
        for name in root.names(folder):
            path = f"{folder}/{name}"
            if name.endswith(".d"):
                yield from root.glob(f"{path}/*.conf")
            elif name.endswith(".service") and root.is_file(path):
                yield path


def wanted(subject: Subject, unit: str) -> Iterator[str]:
    """The links by which a unit starts at boot."""
    for folder in FOLDERS:
        for name in subject.root.names(folder):
            link = f"{folder}/{name}/{unit}"
            if name.endswith(WANTS) and subject.root.lies(link):
                yield link


def line_at(text: str, pattern: re.Pattern[str]) -> int:
    """The number of the first line that matches."""
    found = pattern.search(text)
    return text[: found.end()].count("\n") + 1 if found else 0
