# SPDX-License-Identifier: Apache-2.0
"""What a root may do without its lock: upgrade packages, or install unsigned ones.

apt(8), apt-get(8), unattended-upgrade(8); sources.list(5), apt.conf(5), apt-secure(8).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from imagebuilder.families.protocol import Unsigned
from imagebuilder.families.shipped import RootFiles, text_of

PROGRAMS = frozenset(("apt", "apt-get", "aptitude"))
WORDS = frozenset(("upgrade", "dist-upgrade", "full-upgrade", "safe-upgrade"))
UNATTENDED = frozenset(("unattended-upgrade", "unattended-upgrades"))
# /usr/lib/apt/apt.systemd.daily reads this setting, and runs the program if it is installed.
PROGRAM, CONF = "/usr/bin/unattended-upgrade", "/etc/apt/apt.conf.d"
SETTING = re.compile(
    r"^[ \t]*APT::Periodic::Unattended-Upgrade\s+\"?(?P<days>\w+)\"?\s*;", re.MULTILINE
)
OFF = frozenset(("0", "false", "no"))
APT_ETC = "/etc/apt"
TRUE = r"(yes|true|with|on|enable|1)"
ONE_LINE = re.compile(
    rf"^[ \t]*deb(-src)?\s+\[[^\]]*\b(?P<what>(trusted|allow-insecure)\s*=\s*{TRUE})\b",
    re.IGNORECASE,
)
STANZA = re.compile(rf"^(?P<what>(Trusted|Allow-Insecure)\s*:\s*{TRUE})\b", re.IGNORECASE)
UNSIGNED_SETTING = re.compile(
    r"(?P<what>(AllowUnauthenticated|AllowInsecureRepositories|"
    rf"AllowDowngradeToInsecureRepositories|AllowWeakRepositories)\s+\"?{TRUE})\b",
    re.IGNORECASE,
)
# A folder, the suffix of its files, and the pattern of a line in them.
PLACES = (
    ("sources.list.d", ".list", ONE_LINE),
    ("sources.list.d", ".sources", STANZA),
    ("apt.conf.d", "", UNSIGNED_SETTING),
)
FILES = (("sources.list", ONE_LINE), ("apt.conf", UNSIGNED_SETTING))


def is_upgrade(words: Sequence[str]) -> bool:
    """Whether a command line upgrades packages."""
    program = posixpath.basename(words[0]) if words else ""
    return program in UNATTENDED or (program in PROGRAMS and bool(WORDS & set(words[1:])))


def find_upgrading(root: RootFiles) -> str:
    """The file with the last setting by which apt's timers upgrade packages, "" if none does."""
    found = ""
    if root.host(PROGRAM) is None:
        return found
    for name in root.names(CONF):
        if values := SETTING.findall(text_of(root, f"{CONF}/{name}")):
            found = "" if values[-1].lower() in OFF else f"{CONF}/{name}"
    return found


def find_unsigned(root: RootFiles) -> tuple[Unsigned, ...]:
    found = [(f"{APT_ETC}/{name}", pattern) for name, pattern in FILES]
    for folder, end, pattern in PLACES:
        names = (name for name in root.names(f"{APT_ETC}/{folder}") if name.endswith(end))
        found += [(f"{APT_ETC}/{folder}/{name}", pattern) for name in names]
    return tuple(each for path, pattern in found for each in lines_of(root, path, pattern))


def lines_of(root: RootFiles, path: str, pattern: re.Pattern[str]) -> Iterator[Unsigned]:
    for number, line in enumerate(text_of(root, path).splitlines(), 1):
        if not line.lstrip().startswith(("#", "//")) and (match := pattern.search(line)):
            yield Unsigned(path, number, match["what"])
