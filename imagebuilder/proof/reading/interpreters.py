# SPDX-License-Identifier: Apache-2.0
"""Scripts, and the programs that run them."""

from __future__ import annotations

import mmap
import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from imagebuilder.proof.reading.units import find_program
from imagebuilder.root import Root

SHELL, PYTHON = re.compile(r"(ba|da|k|z)?sh"), re.compile(r"python[\d.]*")
INTERPRETER = re.compile(
    rf"{SHELL.pattern}|{PYTHON.pattern}|(perl|ruby|node|lua)[\d.]*|env|java|busybox"
)
ENV = "env"
EXECUTABLE = 0o111
FIRST_LINE = 256  # bytes that the kernel reads of it (BINPRM_BUF_SIZE)
MOST_BYTES = 1 << 20


def first_line(content: bytes | mmap.mmap | None) -> list[str]:
    """The words of a `#!` line, a carriage return at its end included; none if it has no such line.

    The kernel separates them by blanks and tabs.
    """
    line = bytes((content or b"")[:FIRST_LINE]).partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return []
    return [word for word in re.split(r"[ \t]+", line[2:].decode(errors="replace")) if word]


def behind_env(words: Sequence[str]) -> list[str]:
    """A command line from the program on that it runs: env(1) finds it by its name."""
    if not words or posixpath.basename(words[0]) != ENV:
        return list(words)
    return list(dropwhile(lambda word: word.startswith("-") or "=" in word, words[1:]))


def runs(pattern: re.Pattern[str], words: Sequence[str]) -> bool:
    """Whether the program of a command line has such a name."""
    program = next(iter(behind_env(words)), "")
    return pattern.fullmatch(posixpath.basename(program)) is not None


def texts_of(root: Root, words: Sequence[str]) -> Iterator[str]:
    """A command line, and the script that it runs."""
    yield " ".join(words)
    content = root.map(words[0]) if words and words[0].startswith("/") else None
    if first_line(content):
        yield bytes((content or b"")[:MOST_BYTES]).decode(errors="replace")


def cannot_run(root: Root, program: str) -> str:
    """Why a program of a unit cannot be run, "" if it can."""
    found = find_program(root, program)
    host = root.host(found) if found else None
    if host is None:
        return "which is not in the image"
    if not host.stat().st_mode & EXECUTABLE:
        return "which is not executable"
    for name in first_line(root.map(found))[:1]:
        if not root.is_file(name):
            return f"whose interpreter {name} is not in the image"
    return ""
