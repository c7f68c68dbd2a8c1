# SPDX-License-Identifier: Apache-2.0
"""Which package managers there are, and the words of a base that belong to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points

GROUP = "imagebuilder.package_managers"


@dataclass(frozen=True)
class PackageManager:
    """What a base may say with `package-manager: NAME`; `family` is MODULE:NAME of its code.

    It is plain data, because a recipe is read without that code.
    """

    name: str
    family: str
    distributions: tuple[str, ...]
    engines: tuple[str, ...]


OURS = (
    PackageManager(
        "apt",
        "imagebuilder.families.apt.family:APT",
        distributions=("debian", "ubuntu"),
        engines=("mmdebstrap", "debootstrap", "mkosi", "dib"),
    ),
)


def find_package_managers() -> Mapping[str, PackageManager]:
    """Ours, and those that installed Python packages bring by an entry point, by name."""
    others = (entry.load() for entry in entry_points(group=GROUP))
    return {manager.name: manager for manager in (*OURS, *others)}


PACKAGE_MANAGERS = find_package_managers()
