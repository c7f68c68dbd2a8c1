# SPDX-License-Identifier: Apache-2.0
"""What replaces packages of a running system: apt(8), apt-get(8), unattended-upgrade(8)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from imagebuilder.families.apt.database import text_of
from imagebuilder.families.shipped import RootFiles

PROGRAMS = frozenset(("apt", "apt-get", "aptitude"))
WORDS = frozenset(("upgrade", "dist-upgrade", "full-upgrade", "safe-upgrade"))
UNATTENDED = frozenset(("unattended-upgrade", "unattended-upgrades"))
# /usr/lib/apt/apt.systemd.daily reads this setting, and runs the program if it is installed.
PROGRAM, FOLDER = "/usr/bin/unattended-upgrade", "/etc/apt/apt.conf.d"
SETTING = re.compile(
    r"^[ \t]*APT::Periodic::Unattended-Upgrade\s+\"?(?P<days>\w+)\"?\s*;", re.MULTILINE
)
OFF = frozenset(("0", "false", "no"))


def is_upgrade(words: Sequence[str]) -> bool:
    """Whether a command line upgrades packages."""
    program = posixpath.basename(words[0]) if words else ""
    return program in UNATTENDED or (program in PROGRAMS and bool(WORDS & set(words[1:])))


def find_upgrading(root: RootFiles) -> str:
    """The file with the last setting by which apt's timers upgrade packages, "" if none does."""
    found = ""
    if root.host(PROGRAM) is None:
        return found
    for name in root.names(FOLDER):
        if values := SETTING.findall(text_of(root, f"{FOLDER}/{name}")):
            found = "" if values[-1].lower() in OFF else f"{FOLDER}/{name}"
    return found
