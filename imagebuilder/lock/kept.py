# SPDX-License-Identifier: Apache-2.0
"""Cache of what was read from packages in the pool: a file beside each, with a digest."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_bytes
from imagebuilder.files import Content, read_text

CONTROL, NAMES = ".control", ".names"
ALIAS = re.compile(rb"^Alias[ \t]*=(.*)", re.M)
INIT = re.compile(r"etc/(?:rc\.d/)?init\.d/")
UNIT = re.compile(
    r"[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|target|path|mount|automount|swap|slice|scope)"
)
WORD = re.compile(rb"[A-Za-z0-9_.:@\\-]{2,}")
# A line of sysusers.d(5), passwd(5) or group(5).
ACCOUNT = re.compile(rb"^(?:[ugm][!-]*[ \t]+\"?)?([a-z_][a-z0-9_-]*)", re.M)


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


def is_unit(path: str) -> bool:
    return UNIT.fullmatch(posixpath.basename(path)) is not None


def units_at(paths: Iterable[str]) -> frozenset[str]:
    """The units among these paths, in any folder, and those of init scripts."""
    return frozenset(
        posixpath.basename(path) + (".service" if INIT.search(path) else "")
        for path in paths
        if INIT.search(path) or is_unit(path)
    )


def accounts_in(content: bytes) -> set[str]:
    """The users and groups in a file of sysusers.d(5), passwd(5) or group(5)."""
    return {decoded(name) for name in ACCOUNT.findall(content)}


def words_in(script: bytes) -> frozenset[str]:
    """The words of a maintainer script."""
    return frozenset(decoded(word) for word in WORD.findall(script))


def decoded(found: bytes) -> str:
    return found.decode(errors="replace")


def aliases_in(unit: bytes) -> set[str]:
    """The additional names of a unit once it is enabled."""
    return {name for line in ALIAS.findall(unit) for name in decoded(line).split()}


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
