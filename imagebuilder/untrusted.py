# SPDX-License-Identifier: Apache-2.0
"""Text that strangers send: taken apart without ever raising, and made fit to print.

Whoever is on the wire decides what is in a request, a report, a DHCP packet or a machine's console.
What is read from there passes through here when it comes in (fit(), clean()), so that each value is
one line of printable characters before anything shows, stores or compares it.  presentable() is the
net behind that, at the few places where text leaves us for a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

MOST = 200  # characters of a value
MOST_LONG = 4096  # characters of a line of a text
MOST_WORDS = 32  # words of a query
# What a request may be long: nginx takes 8 kB in a line.
MOST_REQUEST = 16384
# Sequences that move a terminal's cursor or colour it, operating system commands, other controls.
# One that begins and never ends is taken up to the next one.
SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0a-\x1f\x7f]"
)
# What our own text for a terminal is made of besides printable characters: lines, and colours.
OURS = re.compile(r"(\n|\t|\x1b\[(?:0|3[1-6])m)")


@dataclass(frozen=True)
class WebRequest:
    """What somebody asked the web server for; of a word that comes twice, the last counts."""

    path: str
    words: Mapping[str, str]


def parse_request(uri: str) -> WebRequest:
    """The path and the words of the URI in a request, whatever is in it.

    The standard library's urlsplit() looks for a host and raises ValueError at `//[`.  Here
    everything up to the first `?` or `#` is the path, as it is written.
    """
    uri = uri[:MOST_REQUEST].partition("#")[0]
    path, _, query = uri.partition("?")
    pairs = "&".join(query.split("&", MOST_WORDS)[:MOST_WORDS])
    return WebRequest(path, {key: fit(value) for key, value in parse_qsl(pairs)})


def fit(text: str, most: int = MOST) -> str:
    r"""`text` as one line of at most `most` characters, each of which only shows itself.

    Everything that Unicode does not call printable is written as Python writes it, such as `\x1b`
    or `\u202e`: controls, line ends, what turns the direction of text or is invisible, halves of
    surrogate pairs, characters that do not exist.  A tab becomes a space.
    """
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    if not text.isprintable():
        text = "".join(map(show_character, text))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def show_character(character: str) -> str:
    """One character as fit() writes it."""
    if character.isprintable():
        return character
    return " " if character == "\t" else character.encode("unicode_escape").decode("ascii")


def clean(text: str, most: int = MOST) -> str:
    """A line that was meant for a terminal, without what only moves and colours; fit to print."""
    return fit(SEQUENCE.sub("", text).rstrip(), most)


def clean_lines(text: str) -> str:
    """Lines that were meant for a terminal, each of them clean."""
    return "\n".join(clean(line, MOST_LONG) for line in text.replace("\r\n", "\n").split("\n"))


def presentable(text: str) -> str:
    """Text on its way to a terminal: lines, tabs and our own colours pass, all else is written out.

    It cannot tell a line end of ours from a stranger's: for that, values are made fit() when they
    come in.
    """
    if all(line.isprintable() for line in text.split("\n")):
        return text
    parts = OURS.split(text)
    parts[::2] = ["".join(map(show_character, part)) for part in parts[::2]]
    return "".join(parts)
