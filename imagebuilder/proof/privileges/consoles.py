# SPDX-License-Identifier: Apache-2.0
"""Shells on a console without a log-in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.cmdline import kernel_words
from imagebuilder.proof.reading.units import FOLDERS
from imagebuilder.proof.subject import Subject

DEBUG = "debug-shell.service"
WANTS = (".wants", ".requires", ".upholds")
# agetty(8), mingetty(8), login(1).
AUTOLOGIN = re.compile(
    r"^[ \t]*Exec\w+\s*=.*(getty\b.*(--autologin|\s-a)[\s=]|\blogin\s+(\S+\s+)*-f)", re.MULTILINE
)
ON_A_TERMINAL = re.compile(r"^[ \t]*StandardInput\s*=\s*tty", re.MULTILINE)
SHELL = re.compile(
    r"^[ \t]*ExecStart\s*=[-@:+!]*(/usr)?/bin/(ba|da|z|k)?sh(\s+-l)?\s*$", re.MULTILINE
)
WORDS = ("systemd.debug_shell", "rd.systemd.debug_shell")


def find_consoles(subject: Subject) -> Iterator[Privilege]:
    root = subject.root
    for path in unit_files(subject):
        text = root.text(path)
        if AUTOLOGIN.search(text):
            line = line_at(text, AUTOLOGIN)
            gains = f"{path} logs a user in on a console without a password"
            yield Privilege(Opening.CONSOLES, path, path, gains, line=line)
        if ON_A_TERMINAL.search(text) and SHELL.search(text):
            gains = f"{path} is a root shell on a console without a password"
            if not path.endswith(DEBUG):
                yield Privilege(Opening.CONSOLES, path, path, gains, line=line_at(text, SHELL))
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
