# SPDX-License-Identifier: Apache-2.0
"""Configuration files in folders of which an earlier one overrides a later one, file by file, and
the words in them that mean yes and no.
"""

from __future__ import annotations

from collections.abc import Iterable

from imagebuilder.root import Root

# parse_boolean() of systemd.
TRUE = frozenset(("1", "yes", "y", "true", "t", "on"))
FALSE = frozenset(("0", "no", "n", "false", "f", "off"))
PARENTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")


def is_true(text: str) -> bool:
    return text.lower() in TRUE


def is_false(text: str) -> bool:
    return text.lower() in FALSE


def config_folders(name: str) -> tuple[str, ...]:
    """The folders of udev(7), modprobe.d(5), tmpfiles.d(5) and systemd.unit(5), by priority."""
    return tuple(f"{parent}/{name}" for parent in PARENTS)


def config_files(root: Root, folders: Iterable[str], ending: str) -> list[str]:
    """The effective files by name; one in an earlier folder overrides its namesakes."""
    chosen: dict[str, str] = {}
    for folder in folders:
        for name in root.names(folder):
            if name.endswith(ending):
                chosen.setdefault(name, f"{folder}/{name}")
    return [path for _, path in sorted(chosen.items())]
