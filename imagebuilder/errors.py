# SPDX-License-Identifier: Apache-2.0
"""Errors in three parts (where, what, what next) and the exit code each kind leads to."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

# Python reads the module of a codec when it is first used, and a program that gave up root's rights
# may not be able to: Python itself may be in root's home.
ESCAPE = codecs.getencoder("unicode_escape")


def one_line(text: str) -> str:
    r"""`text` with everything that is not printable escaped as in Python, such as `\n` or `\x1b`.

    The name of a file may have any characters: one with a newline could add an error or a hint of
    its own.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escape_character(c) for c in text)


def escape_character(character: str) -> str:
    r"""A character in the form of Python, such as `\x1b`."""
    return ESCAPE(character)[0].decode("ascii")


def below(text: str, indent: int) -> str:
    """`text`, with every further line at least `indent` columns to the right.

    It may be of a manifest, a report, a node or another machine: a line break in it begins no line
    that looks like one of ours.
    """
    first, *more = text.split("\n")
    space = " " * indent
    return "\n".join((first, *(line if line.startswith(space) else space + line for line in more)))


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: where it is, what it is, and what the person can do next."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        what = below(self.what, 4)
        text = f"{one_line(self.where)}: {what}" if self.where else what
        return f"{text}\n  hint: {below(self.hint, 8)}" if self.hint else text


class ImagebuilderError(Exception):
    """Base of every error a person may see; `exit_code` is what the command ends with."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.faults: tuple[Fault, ...] = (Fault(where, what, hint),)
        super().__init__(str(self.faults[0]))

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> Self:
        """An error that reports every one of `faults`, which must not be empty."""
        listed = tuple(faults)
        error = cls(listed[0].what, where=listed[0].where, hint=listed[0].hint)
        error.faults = listed
        return error


class WorkError(ImagebuilderError):
    """The input and the host are fine, the work failed (exit code 1)."""


class InputError(ImagebuilderError):
    """What the person wrote is wrong (exit code 2)."""

    exit_code = 2


class HostError(ImagebuilderError):
    """The host is not fit: a tool, root, space, a mirror (exit code 3)."""

    exit_code = 3


class RootError(HostError):
    """Only root can do this; raised before anything is changed, so root can start over."""

    def __init__(self, what: str, *, where: str = "", hint: str = "run it as root") -> None:
        super().__init__(what, where=where, hint=hint)


class FullError(HostError):
    """A disk is full, or would be: somebody may make room, and it may go well then."""


def why(error: BaseException) -> str:
    """The innermost reason of an error of requests, which wraps it and shows the address."""
    while error.__context__ is not None:
        error = error.__context__
    strerror = getattr(error, "strerror", None)
    return str(strerror or type(error).__name__)
