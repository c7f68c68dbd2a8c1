# SPDX-License-Identifier: Apache-2.0
"""Untrusted text: parse it without ever raising, and make it printable.

Any machine on the network can choose the text of a request, a report, a DHCP packet or its console.
All such text passes through fit() or clean() when it is read, so that each value is one line of
printable characters before anything shows, stores or compares it.  presentable() is the second line
of defence, where text is written to a terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from imagebuilder.errors import escape_character

MOST = 200  # characters of a value
MOST_LONG = 4096  # characters of a line of a text
MOST_RAW = 16  # characters for each one that is shown: sequences take some
MOST_WORDS = 32  # words of a query
# The maximum length of a request: nginx accepts 8 kB per line.
MOST_REQUEST = 16384
# Sequences that move a terminal's cursor or colour it, operating system commands, other controls.
# An unterminated sequence ends at the next one.
SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0a-\x1f\x7f]"
)
# Nobody else knows this number, so text from elsewhere cannot have one of our colours: it could say
# that a node is fine in the green of our own words.
SECRET_MARK = f";{int.from_bytes(os.urandom(8))}m"
# Allowed in our own text for a terminal besides printable characters: newlines, tabs and colours.
OURS = re.compile(rf"(\n|\t|\x1b\[(?:0|3[1-6]){SECRET_MARK})")


@dataclass(frozen=True)
class WebRequest:
    """A request to the web server; of repeated parameters, the last counts."""

    path: str
    words: Mapping[str, str]


def parse_request(uri: str) -> WebRequest:
    """Parse the path and the parameters of the URI in a request; never raises.

    The standard library's urlsplit() looks for a host and raises ValueError at `//[`.  Here
    everything up to the first `?` or `#` is the literal path.
    """
    uri = uri[:MOST_REQUEST].partition("#")[0]
    path, _, query = uri.partition("?")
    pairs = "&".join(query.split("&", MOST_WORDS)[:MOST_WORDS])
    return WebRequest(path, {key: fit(value) for key, value in parse_qsl(pairs)})


def fit(text: str, most: int = MOST) -> str:
    r"""`text` as one line of at most `most` printable characters.

    Everything that Unicode does not call printable is escaped as in Python, such as `\x1b` or
    `\u202e`: controls, newlines, characters that are invisible or change the direction of text,
    lone surrogates, unassigned characters.  A tab becomes a space.
    """
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    if not text.isprintable():
        text = "".join(map(show_character, text))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def show_character(character: str) -> str:
    """One character in the form of fit()."""
    if character.isprintable():
        return character
    return " " if character == "\t" else escape_character(character)


def clean(text: str, most: int = MOST) -> str:
    """A printable line from terminal output, without cursor movements and colours.

    Of a line without an end, only the beginning is looked at.
    """
    begun = text[: MOST_RAW * most]
    more = "…" * (begun != text)
    return fit(SEQUENCE.sub("", begun).rstrip() + more, most)


def clean_lines(text: str) -> str:
    """Printable lines from terminal output."""
    return "\n".join(clean(line, MOST_LONG) for line in text.replace("\r\n", "\n").split("\n"))


def begin_colour(number: int) -> str:
    """What begins a colour of our own text (ECMA-48 SGR; 0 ends it); presentable() lets it pass."""
    return f"\x1b[{number}{SECRET_MARK}"


def presentable(text: str) -> str:
    """Text for a terminal: newlines, tabs and our own colours pass, everything else is escaped.

    It cannot tell our newlines from untrusted ones, so values must pass fit() when they are read.
    """
    return escape(text).replace(SECRET_MARK, "m")


def escape(text: str) -> str:
    """`text` as for presentable(), which it still has to pass."""
    if all(line.isprintable() for line in text.split("\n")):
        return text
    parts = OURS.split(text)
    parts[::2] = ["".join(map(show_character, part)) for part in parts[::2]]
    return "".join(parts)
