# SPDX-License-Identifier: Apache-2.0
"""Configuration files: which of them count, those that include others, which may include them again
or go on for thousands of files, and the assignments in those of systemd.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from imagebuilder.root import Root

# parse_boolean() of systemd.
TRUE = frozenset(("1", "yes", "y", "true", "t", "on"))
FALSE = frozenset(("0", "no", "n", "false", "f", "off"))
PARENTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
L = TypeVar("L")

MOST_LEVELS = 128  # as sudo(8) has it (MAX_SUDOERS_DEPTH)


def is_true(text: str) -> bool:
    return text.lower() in TRUE


def is_false(text: str) -> bool:
    return text.lower() in FALSE


def config_folders(name: str) -> tuple[str, ...]:
    """The folders of udev(7), modprobe.d(5), tmpfiles.d(5) and systemd.unit(5), by priority."""
    return tuple(f"{parent}/{name}" for parent in PARENTS)


def config_files(
    root: Root,
    folders: Iterable[str],
    ending: str,
    names: Callable[[Root, str], Iterable[str]] = Root.names,
) -> list[str]:
    """The effective files by name; one in an earlier folder overrides its namesakes.

    `names` are those in a folder.
    """
    chosen: dict[str, str] = {}
    for folder in folders:
        for name in names(root, folder):
            if name.endswith(ending):
                chosen.setdefault(name, f"{folder}/{name}")
    return [path for _, path in sorted(chosen.items())]


def assignments(text: str) -> Iterator[tuple[str, str, str]]:
    """(section, key, value) of every assignment, continued lines joined (systemd.syntax(7))."""
    section = ""
    joined = re.sub(r"\\\n([#;].*\n)*", " ", text)
    for line in (line.strip() for line in joined.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            yield section, key.strip(), value.strip()


def read_including(
    path: str, lines_of: Callable[[str], Iterable[L]], included: Callable[[L], list[str] | None]
) -> Iterator[L]:
    """The lines of a file, with those of others in the place of a line that includes them.

    `included` gives the paths that a line includes, None for another line.  Each file is read once.
    """
    seen: set[str] = set()

    def lines_in(paths: Iterable[str]) -> Iterator[L]:
        for each in paths:
            if each not in seen:
                seen.add(each)
                yield from lines_of(each)

    reading = [lines_in([path])]
    while reading:
        for line in reading[-1]:
            paths = included(line)
            if paths is None:
                yield line
            elif len(reading) <= MOST_LEVELS:
                reading.append(lines_in(paths))
                break
        else:
            reading.pop()
