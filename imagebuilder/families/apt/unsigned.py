# SPDX-License-Identifier: Apache-2.0
"""Find lines in /etc/apt that disable signatures (sources.list(5), apt.conf(5), apt-secure(8))."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.families.apt.database import text_of
from imagebuilder.families.protocol import Unsigned
from imagebuilder.families.shipped import RootFiles

FOLDER = "/etc/apt"
TRUE = r"(yes|true|with|on|enable|1)"
ONE_LINE = re.compile(
    rf"^[ \t]*deb(-src)?\s+\[[^\]]*\b(?P<what>(trusted|allow-insecure)\s*=\s*{TRUE})\b",
    re.IGNORECASE,
)
STANZA = re.compile(rf"^(?P<what>(Trusted|Allow-Insecure)\s*:\s*{TRUE})\b", re.IGNORECASE)
SETTING = re.compile(
    r"(?P<what>(AllowUnauthenticated|AllowInsecureRepositories|"
    rf"AllowDowngradeToInsecureRepositories|AllowWeakRepositories)\s+\"?{TRUE})\b",
    re.IGNORECASE,
)
# A folder, the suffix of its files, and the pattern of a line in them.
PLACES = (
    ("sources.list.d", ".list", ONE_LINE),
    ("sources.list.d", ".sources", STANZA),
    ("apt.conf.d", "", SETTING),
)
FILES = (("sources.list", ONE_LINE), ("apt.conf", SETTING))


def find_unsigned(root: RootFiles) -> tuple[Unsigned, ...]:
    found = [(f"{FOLDER}/{name}", pattern) for name, pattern in FILES]
    for folder, end, pattern in PLACES:
        names = (name for name in root.names(f"{FOLDER}/{folder}") if name.endswith(end))
        found += [(f"{FOLDER}/{folder}/{name}", pattern) for name in names]
    return tuple(each for path, pattern in found for each in lines_of(root, path, pattern))


def lines_of(root: RootFiles, path: str, pattern: re.Pattern[str]) -> Iterator[Unsigned]:
    for number, line in enumerate(text_of(root, path).splitlines(), 1):
        if not line.lstrip().startswith(("#", "//")) and (match := pattern.search(line)):
            yield Unsigned(path, number, match["what"])
