# SPDX-License-Identifier: Apache-2.0
"""Files that give root's rights: setuid, capabilities, and what other users may change or read; and
accounts that are root or equivalent to root, passwd(5), shadow(5), group(5), and shells on a
console without a log-in.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.accounts import GROUP, PASSWD, SHADOW, rows
from imagebuilder.proof.reading.udev import UdevRule, facts_of, read_rules
from imagebuilder.proof.reading.units import FOLDERS
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

CAPABILITIES = "security.capability"
# What root runs, loads or trusts: the folders of programs and libraries, and in /etc what
# services, logins, the loader, the kernel and the package manager read.
TRUSTED = (
    "/usr/", "/boot/", "/lib/", "/bin/", "/sbin/",
    "/etc/systemd/", "/etc/init.d/", "/etc/profile.d/", "/etc/cron", "/etc/pam.d/",
    "/etc/security/",
    "/etc/sudoers", "/etc/ssh/", "/etc/udev/", "/etc/modprobe.d/", "/etc/modules-load.d/",
    "/etc/ld.so.", "/etc/tmpfiles.d/", "/etc/sysctl.d/", "/etc/default/", "/etc/kernel/",
    "/etc/logrotate.d/", "/etc/polkit-1/", "/etc/dbus-1/", "/etc/binfmt.d/", "/etc/network/",
    "/etc/NetworkManager/dispatcher.d/", "/etc/networkd-dispatcher/", "/etc/skel/", "/root/",
)  # fmt: skip
BELIEVED = frozenset(
    ("/etc", "/root", "/usr", "/boot", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow",
     "/etc/profile", "/etc/bash.bashrc", "/etc/environment", "/etc/crontab", "/etc/fstab",
     "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/rc.local", "/etc/doas.conf")
)  # fmt: skip
HIDDEN = ("/etc/shadow", "/etc/gshadow")
# The subsystem of a device, a name that the kernel gives it, and what reading it exposes.
DEVICES = (
    ("block", "sda", "disks"),
    ("block", "nvme0n1", "disks"),
    ("block", "vda", "disks"),
    ("block", "dm-0", "disks"),
    ("mem", "mem", "memory"),
    ("mem", "kmem", "memory"),
    ("mem", "port", "ports of devices"),
)
OTHERS = 0o006
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


def find_files(
    root: Root,
    entries: Mapping[str, os.stat_result],
    groups: Mapping[int, str],
    run: frozenset[str],
) -> Iterator[Privilege]:
    """Ways to become root by modes, owners and attributes; `run` are programs of root's services.

    `entries` are all paths of the root, `groups` the names of groups by id.
    """
    for path, info in entries.items():
        kind, mode = stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode)
        users = starters(info, groups)
        if kind == stat.S_IFREG and mode & (stat.S_ISUID | stat.S_ISGID) and users:
            who = "root" if mode & stat.S_ISUID and info.st_uid == 0 else "its owner"
            gains = f"{path} runs as {who} for {users} who starts it (mode {mode:04o})"
            yield Privilege(Opening.SETUID, path, path, gains)
        if kind == stat.S_IFREG and mode & 0o111 and has_capabilities(root, path):
            gains = f"{path} has root's rights for any user who starts it (file capabilities)"
            yield Privilege(Opening.CAPABILITIES, path, path, gains)
        if kind != stat.S_IFLNK and (path in BELIEVED | run or f"{path}/".startswith(TRUSTED)):
            yield from find_writers(path, info, groups)
        is_shadows = info.st_gid == 0 or groups.get(info.st_gid) == "shadow"
        if path in HIDDEN and (mode & 0o007 or (mode & 0o040 and not is_shadows)):
            gains = f"users other than root can read password hashes in {path} (mode {mode:04o})"
            yield Privilege(Opening.NEVER, path, path, gains)


def starters(info: os.stat_result, groups: Mapping[int, str]) -> str:
    """Which users beside its owner may execute a file, "" if only root's group."""
    if info.st_mode & 0o001:
        return "any user"
    if info.st_mode & 0o010 and info.st_gid:
        return f"any member of {groups.get(info.st_gid, info.st_gid)}"
    return "its owner" if info.st_mode & 0o100 and info.st_uid else ""


def find_writers(path: str, info: os.stat_result, groups: Mapping[int, str]) -> Iterator[Privilege]:
    """A way if users other than root may change something that root runs or trusts."""
    mode = stat.S_IMODE(info.st_mode)
    sticky = stat.S_ISDIR(info.st_mode) and mode & stat.S_ISVTX
    writers = [
        *([f"its owner (uid {info.st_uid})"] if info.st_uid != 0 else []),
        *(
            [f"the group {groups.get(info.st_gid, info.st_gid)}"]
            if mode & 0o020 and info.st_gid
            else []
        ),
        *(["everybody"] if mode & 0o002 and not sticky else []),
    ]
    if writers:
        gains = f"{' and '.join(writers)} may change {path}, which root runs or trusts"
        yield Privilege(Opening.WRITABLE, path, path, gains)


def has_capabilities(root: Root, path: str) -> bool:
    try:
        return CAPABILITIES in os.listxattr(Path(f"{root.path}{path}"), follow_symlinks=False)
    except OSError:
        return False


def find_devices(subject: Subject) -> Iterator[Privilege]:
    """Rules that may let everybody read or write a disk or memory."""
    for rule in read_rules(subject):
        mode = rule.value("MODE")
        if not re.fullmatch("[0-7]{3,4}", mode) or not int(mode, 8) & OTHERS:
            continue
        for subsystem, name, what in DEVICES:
            if opens(rule, subsystem, name):
                gains = f"everybody may use {what}, such as /dev/{name} (mode {mode})"
                yield Privilege(Opening.WRITABLE, f"/dev/{name}", rule.path, gains)
                break


def opens(rule: UdevRule, subsystem: str, name: str) -> bool:
    """Whether a rule may apply to such a device, by its subsystem or its name."""
    matched = {key for key, _, operator, _ in rule.parts if operator == "=="}
    is_specific = bool(matched & {"SUBSYSTEM", "KERNEL"})
    return is_specific and rule.holds(facts_of(subsystem, name)) is not False


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
    for word in subject.words:
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
    found = pattern.search(text)
    return text[: found.end()].count("\n") + 1 if found else 0
