# SPDX-License-Identifier: Apache-2.0
"""Which package managers there are, and the words of a base that belong to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from imagebuilder.errors import HostError

GROUP = "imagebuilder.package_managers"


@dataclass(frozen=True)
class PackageManager:
    """What a base may say with `package-manager: NAME`; `family` is MODULE:NAME of its code.

    It is plain data, because a recipe is read without that code.  `pool` is the folder of the state
    for its packages; of `engines` the first is the default.  Repositories with `streams` have
    modules (DNF's) and no date on which they expire.  Without `globs` only whole folders can be
    excluded from an installation.  `capitals` and underscores may be in names of packages.
    """

    name: str
    family: str
    pool: str
    distributions: tuple[str, ...]
    engines: tuple[str, ...]
    streams: bool = False
    globs: bool = True
    capitals: bool = False


OURS = (
    PackageManager(
        "apt",
        "imagebuilder.families.apt.family:APT",
        pool="debs",
        distributions=("debian", "ubuntu"),
        engines=("mmdebstrap", "debootstrap", "mkosi", "dib"),
    ),
    PackageManager(
        "rpm",
        "imagebuilder.families.rpm.family:RPM",
        pool="rpms",
        distributions=("rocky",),
        engines=("rpm",),
        streams=True,
        globs=False,
        capitals=True,
    ),
)


def find_package_managers() -> Mapping[str, PackageManager]:
    """Ours, and those that installed Python packages bring by an entry point, by name.

    Raises HostError for an entry point that does not load.
    """
    others = map(load_entry, entry_points(group=GROUP))
    return {manager.name: manager for manager in (*OURS, *others)}


def load_entry(entry: EntryPoint) -> PackageManager:
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        found = error
    if isinstance(found, PackageManager):
        return found
    raise HostError(
        f"the entry point {entry.name} = {entry.value} is no PackageManager: {found}",
        where=GROUP,
        hint="update or remove the Python package that provides it; its module may import "
        "imagebuilder.package_managers and no other part of this program",
    )


PACKAGE_MANAGERS = find_package_managers()
# Of every package manager, in their order.
DISTRIBUTIONS = tuple(name for each in PACKAGE_MANAGERS.values() for name in each.distributions)
ENGINES = tuple(name for each in PACKAGE_MANAGERS.values() for name in each.engines)
POOLS = tuple(dict.fromkeys(each.pool for each in PACKAGE_MANAGERS.values()))


def manager_of(distribution: str) -> PackageManager:
    """What makes the roots of a distribution.  Raises KeyError."""
    for manager in PACKAGE_MANAGERS.values():
        if distribution in manager.distributions:
            return manager
    raise KeyError(distribution)
