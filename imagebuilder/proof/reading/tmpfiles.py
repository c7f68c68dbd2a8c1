# SPDX-License-Identifier: Apache-2.0
"""What is made when a node boots: by the lines of tmpfiles.d(5), and by systemd for a unit."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.proof.reading.config import config_files, config_folders
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.subject import Subject, once

FOLDERS = config_folders("tmpfiles.d")
OCTAL = re.compile("[0-7]{3,4}")
NOTHING = "-"
# Lines of tmpfiles.d(5) that set the mode and the owner of a path.
MAKES = frozenset("dDqQvezZfFCm")
MADE_FOLDERS = frozenset("dDqQve")
NEW_FOLDER = os.stat_result((stat.S_IFDIR | 0o755, *[0] * 9))
# Folders that systemd makes before a service starts, and where.
MADE = {
    "RuntimeDirectory": "/run",
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
    "ConfigurationDirectory": "/etc",
}
# Kinds of lines of tmpfiles.d(5) that make the path.
MADE_KINDS = re.compile(r"[dDqQvfFCpLcb]")


@dataclass(frozen=True)
class TmpfilesLine:
    """A line of the file at `place`; `kind` is the letter of its type, without modifiers.

    `mode` is None, and `user` and `group` are empty, where the line leaves them as they are.  `age`
    is that of what is removed, "" if nothing is.
    """

    place: str
    said: str
    kind: str
    path: str
    mode: int | None
    user: str
    group: str
    argument: str
    age: str = ""


@once
def read_tmpfiles(subject: Subject) -> tuple[TmpfilesLine, ...]:
    """Every line in effect, in the order in which the files are read."""
    found: list[TmpfilesLine] = []
    for place in config_files(subject.root, FOLDERS, ".conf"):
        for line in subject.root.text(place).splitlines():
            words = line.split(maxsplit=6)
            if len(words) < 2 or line.lstrip().startswith("#"):
                continue
            kind, path, mode, user, group, age, argument = [*words, *[NOTHING] * 5][:7]
            bits = mode.lstrip(":~")
            found.append(TmpfilesLine(
                place, line.strip(), kind[0], path,
                int(bits, 8) if OCTAL.fullmatch(bits) else None,
                owner(user), owner(group), "" if argument == NOTHING else argument.strip(),
                "" if age == NOTHING else age,
            ))  # fmt: skip
    return tuple(found)


def owner(word: str) -> str:
    """A user or a group; one with a colon counts only for what is new."""
    return "" if word == NOTHING else word.removeprefix(":")


def with_tmpfiles(
    subject: Subject, entries: Mapping[str, os.stat_result]
) -> dict[str, os.stat_result]:
    """Every path as it is after the boot: with the modes and owners that tmpfiles.d(5) sets."""
    found = dict(entries)
    accounts = subject.accounts
    for line in read_tmpfiles(subject):
        path = line.path.rstrip("/")
        if line.kind in MAKES and (
            path in found or (path[:1] == "/" and line.kind in MADE_FOLDERS)
        ):
            info = found.get(path, NEW_FOLDER)
            kept = stat.S_IFMT(info.st_mode)
            new = info.st_mode if line.mode is None else kept | line.mode
            user = accounts.users.get(line.user)
            uid = user.uid if user else info.st_uid
            gid = accounts.groups.get(line.group, info.st_gid)
            found[path] = os.stat_result((new, *info[1:4], uid, gid, *info[6:10]))
    return found


def made_by(unit: LoadedUnit) -> Iterator[str]:
    """The folders that systemd makes for a unit, which belong to its account."""
    for key, top in MADE.items():
        yield from (f"{top}/{word.partition(':')[0]}" for word in unit.words(key))


def made_by_tmpfiles(subject: Subject) -> set[str]:
    """The paths that systemd-tmpfiles makes at boot."""
    return {line.path.rstrip("/") for line in read_tmpfiles(subject) if MADE_KINDS.match(line.kind)}
