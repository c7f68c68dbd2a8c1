# SPDX-License-Identifier: Apache-2.0
"""The lines of tmpfiles.d(5), which systemd-tmpfiles obeys at boot."""

from __future__ import annotations

import re
from dataclasses import dataclass

from imagebuilder.proof.reading.config import config_files, config_folders
from imagebuilder.proof.subject import Subject, once

FOLDERS = config_folders("tmpfiles.d")
OCTAL = re.compile("[0-7]{3,4}")
NOTHING = "-"


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
