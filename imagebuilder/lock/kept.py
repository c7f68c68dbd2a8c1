# SPDX-License-Identifier: Apache-2.0
"""Cache of what was read from packages in the pool: a file beside each, with a digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_bytes
from imagebuilder.files import Content, read_text

CONTROL, NAMES = ".control", ".names"
ALIAS = re.compile(rb"^Alias[ \t]*=(.*)", re.M)


@dataclass(frozen=True)
class Names:
    """Names in a package: `units` are files, links and aliases, `accounts` are users and groups.

    `words` are those of its maintainer scripts, which can create what they name.  Not `whole` means
    that some files which may contain more names were not read.
    """

    units: frozenset[str]
    accounts: frozenset[str]
    words: frozenset[str]
    whole: bool

    def render(self) -> str:
        """The text that parse_names() reads."""
        sets = (self.units, self.accounts, self.words)
        return "\n".join(["whole" if self.whole else "", *(" ".join(sorted(s)) for s in sets)])


def parse_names(text: str) -> Names:
    """The names in a text.  Raises ValueError."""
    whole, *sets = text.split("\n")
    units, accounts, words = (frozenset(each.split()) for each in sets)
    return Names(units, accounts, words, whole=whole == "whole")


def aliases_in(unit: bytes) -> set[str]:
    """The additional names of a unit once it is enabled."""
    return {name for line in ALIAS.findall(unit) for name in line.decode(errors="replace").split()}


def kept(package: Path, suffix: str, text: str) -> Content:
    """The cache file of a package."""
    path = package.with_suffix(suffix)
    return Content(path, f"{digest_of_bytes(text.encode())}\n{text}".encode())


def find_kept(path: Path) -> str | None:
    """The text in a cache file; None if it is missing or does not match its digest."""
    try:
        digest, _, text = read_text(path).partition("\n")
    except OSError:
        return None
    return text if digest == digest_of_bytes(text.encode()) else None
