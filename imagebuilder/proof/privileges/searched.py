# SPDX-License-Identifier: Apache-2.0
"""What root runs without a unit: the kernel's helpers, udev's and cron's programs, and the folders
in which a program or a library is searched by its name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from imagebuilder.proof.privileges.sudo import joined_lines, lines_of, read_sudoers
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.libraries import configured
from imagebuilder.proof.reading.parameters import config_lines, read_sysctl
from imagebuilder.proof.reading.udev import read_rules
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# Settings of the kernel that name a program, which it starts as root (core(5), sysctl of Linux).
HELPERS = ("kernel.core_pattern", "kernel.modprobe", "kernel.poweroff_cmd", "kernel.hotplug")
CRON = ("/etc/crontab", "/etc/cron.d/*")
# Root's own table, of Debian's cron and of cronie.
SPOOLS = ("/var/spool/cron/crontabs/root", "/var/spool/cron/root")
TIMES = 5  # words of a line before the user (crontab(5)), one if it begins with @
PROGRAM = re.compile(r"(?<![\w./-])/[\w.+/-]+")
SECURE_PATH = re.compile(r"Defaults\S*\s.*?\bsecure_path\s*\+?=\s*\"?(?P<value>[^\"\s]+)")
ENVIRONMENT, LOGIN = "/etc/environment", "/etc/login.defs"
PATH = re.compile(r"(?:ENV_SUPATH\s+|export\s+)?PATH=[\"']?(?P<value>[^\"'\s]+)")


@dataclass(frozen=True)
class SearchFolder:
    """A folder in which root's programs are searched: by whom, and the line that says so."""

    path: str
    by: str
    where: str


def find_programs(subject: Subject) -> frozenset[str]:
    """The programs that the kernel, udev, modprobe and cron start as root."""
    root = subject.root
    settings = read_sysctl(subject)
    texts = [settings[name].value for name in HELPERS if name in settings]
    for rule in read_rules(subject):
        texts += [v for k, _, _, v in rule.parts if k in ("RUN", "PROGRAM")]
        texts += [v for k, a, _, v in rule.parts if (k, a) == ("IMPORT", "program")]
    texts += [line for _, line in config_lines(subject) if line.startswith(("install ", "remove "))]
    texts += [line.text for line in lines_of(root, CRON) if is_roots(line.text)]
    texts += [line.text for line in lines_of(root, SPOOLS)]
    named = {path for text in texts for path in PROGRAM.findall(text)}
    return frozenset(path for path in named if root.is_file(path))


def is_roots(line: str) -> bool:
    """Whether a line of cron's own tables is for root."""
    words = line.split()
    place = 1 if line.startswith("@") else TIMES
    return words[place : place + 1] == ["root"]


def find_search_folders(root: Root) -> Iterator[SearchFolder]:
    """The folders of sudo's, cron's and root's PATH, and those of the loader (ld.so.conf(5))."""
    for line in read_sudoers(root):
        if match := SECURE_PATH.match(line.text):
            where = f"{line.path}:{line.number}"
            yield from folders_of(match["value"], "sudo searches for programs", where)
    for path in (*root.glob(CRON[1]), CRON[0], ENVIRONMENT, LOGIN):
        for line in joined_lines(root, path):
            if match := PATH.match(line.text):
                who = "cron" if "cron" in path else "root's shell"
                where = f"{path}:{line.number}"
                yield from folders_of(match["value"], f"{who} searches for programs", where)
    for folder, where in configured(root):
        path = os.path.normpath(folder)
        yield SearchFolder(path, "every program searches for libraries", where)


def folders_of(value: str, by: str, where: str) -> Iterator[SearchFolder]:
    for folder in value.split(":"):
        if folder.startswith("/"):
            yield SearchFolder(os.path.normpath(folder), by, where)


def find_open_folders(
    folders: Iterable[SearchFolder], entries: Mapping[str, os.stat_result]
) -> Iterator[Privilege]:
    """A way for each folder into which users other than root may put a program or a library.

    The sticky bit only keeps what is there.
    """
    seen: set[str] = set()
    for folder in folders:
        who = who_adds(folder.path, entries)
        if who and folder.path not in seen:
            seen.add(folder.path)
            gains = f"{who} may put files into {folder.path}, where {folder.by} ({folder.where})"
            path = folder.where.partition(":")[0]
            yield Privilege(Opening.WRITABLE, folder.path, path, gains)


def who_adds(path: str, entries: Mapping[str, os.stat_result]) -> str:
    """Who other than root may add files to a folder, or make it or one above it; "" for nobody."""
    chain = [*[os.fspath(each) for each in reversed(PurePosixPath(path).parents)][1:], path]
    for each, below in zip(chain, [*chain[1:], ""], strict=True):
        info = entries.get(each)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return ""
        keeps = info.st_mode & stat.S_ISVTX and below in entries
        if info.st_uid != 0:
            return f"its owner (uid {info.st_uid})" if each == path else f"the owner of {each}"
        if info.st_mode & 0o002 and not keeps:
            return "everybody"
        if info.st_mode & 0o020 and info.st_gid and not keeps:
            return f"the group {info.st_gid}"
    return ""
