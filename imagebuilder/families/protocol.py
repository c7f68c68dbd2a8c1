# SPDX-License-Identifier: Apache-2.0
"""What a package manager does for imagebuilder: all that the rest of it asks.

    Recipe -- solve --> Solution -- (wheels, epochs: resolve.py) --> Lock
    Lock -- fetch --> pool -- bootstrap, install --> root -- installed, kernel_release --> facts
    root, read from outside -- owners, shipped --> facts of the proof and of a comparison

A family is a value without state.  Packages are locked by digest before anything is built: a build
installs exactly these files, without a solver that chooses and without a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from imagebuilder.families.tool import Tool
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.kept import Names
from imagebuilder.lock.patience import Patience, Progress
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import Lock, LockedPackage, LockedSource, LockedSourcePackage
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.workspace import Workspace

# Told of each file that is there and right, with its package.
Keep = Callable[[Sequence[tuple[Path, LockedPackage]]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Archives:
    """How packages are reached: addresses of mirrors by name, and where indexes are kept."""

    mirrors: Mapping[str, str]
    cache: Path


@dataclass(frozen=True)
class Chosen:
    """What was chosen for one request; `sources` are source packages, of a build alone."""

    request: Request
    packages: tuple[LockedPackage, ...]
    sources: tuple[LockedSourcePackage, ...] = ()


@dataclass(frozen=True)
class Solution:
    """What was chosen for each request, in their order, and what the suites say of themselves."""

    chosen: tuple[Chosen, ...]
    sources: tuple[LockedSource, ...]


@dataclass(frozen=True)
class Packages:
    """Locked packages to be installed, all of them and no others; `suite` is the base's."""

    suite: str
    architecture: str
    packages: tuple[LockedPackage, ...]
    path_excludes: tuple[str, ...]
    epoch: int


@dataclass(frozen=True)
class Engine:
    """What makes a first layer: the host's program, and the version of our code around it.

    `version` is counted up when the engine makes something else of the same packages.
    """

    tool: Tool
    version: int = 1


@dataclass(frozen=True)
class Installed:
    """A package in a root: bytes it takes (0: unknown), and whether it is installed whole."""

    version: str
    size: int
    whole: bool


class Family(Protocol):
    """A package manager and the distributions it makes."""

    @property
    def name(self) -> str:
        """`package-manager` of a base."""
        ...

    @property
    def engines(self) -> Mapping[str, Engine]:
        """What makes first layers, by `engine` of a base."""
        ...

    @property
    def bootstrap_version(self) -> str:
        """The version of the code behind bootstrap(), as a layer's inputs have it."""
        ...

    @property
    def install_version(self) -> str:
        """The version of the code behind install(), as a layer's inputs have it."""
        ...

    @property
    def set_up(self) -> re.Pattern[str]:
        """Matches a line of an installation for each package, with its name as first group."""
        ...

    # Recipe -> Lock

    def find_mirrors(self, site: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
        """Addresses of archives by name: of the environment, the site file, this host's own."""
        ...

    def solve(
        self,
        recipe: Recipe,
        requests: Sequence[Request],
        archives: Archives,
        *,
        previous: Lock | None,
        keep: bool,
        allow_older: bool,
        progress: Tell,
    ) -> Solution:
        """Choose the packages of every request, each on top of those before; builds come last.

        With `keep`, versions of `previous` that an archive still has are taken again; with
        `allow_older`, an archive may be older than when `previous` was made.  `progress` is told
        what happens and, in lines that start with `note:`, what a person should know.  Raises
        InputError (unknown packages, all at once, and what cannot be satisfied), HostError (a
        mirror that is not reachable) and WorkError (a signature that is not good).
        """
        ...

    def read_sources(
        self, sources: Sequence[Source], archives: Archives, architecture: str, progress: Tell
    ) -> tuple[LockedSource, ...]:
        """What the archives of `sources` say of themselves now, verified.  Raises as solve()."""
        ...

    def find_suites(self, recipe: Recipe, archives: Archives, names: Sequence[str]) -> Suites:
        """The suites that have these packages, as far as the last solve() knows."""
        ...

    # Lock -> pool

    def fetch(
        self,
        packages: Sequence[LockedPackage],
        sources: Sequence[Source],
        archives: Archives,
        folder: Path,
        keep: Keep,
        *,
        architecture: str,
        progress: Progress,
        patience: Patience,
    ) -> None:
        """Fetch packages into `folder`, where unfinished files are continued.

        Raises HostError when a mirror is not reachable or too slow or the disk is full, WorkError
        for a package that is gone or has other content.
        """
        ...

    def glibc(self, packages: Iterable[LockedPackage]) -> str:
        """The version of the C library among `packages`, "" for none: wheels depend on it."""
        ...

    def python(self, packages: Iterable[LockedPackage], interpreter: str) -> str:
        """The upstream version of the package that brings `interpreter`, "" for none."""
        ...

    def names(
        self, folder: Path, packages: Sequence[LockedPackage], *, whole: bool
    ) -> Sequence[Names]:
        """The units and accounts that each package of the pool `folder` may bring.

        With `whole`, files that are slow to read are read too.  Raises WorkError for a package that
        is not there.
        """
        ...

    # pool -> root

    def check_host(self) -> None:
        """Raise HostError unless the host has what install() and serving packages want."""
        ...

    def bootstrap(self, engine: str, packages: Packages, workspace: Workspace) -> None:
        """Make the first layer.  Engines are interchangeable: what else they leave is removed."""
        ...

    def install(self, packages: Packages, workspace: Workspace) -> None:
        """Add packages to a root.  Raises WorkError."""
        ...

    def unpack_source(
        self, source: LockedSourcePackage, folder: Path, workspace: Workspace
    ) -> None:
        """Unpack a source package at `folder`/NAME, with the root's programs."""
        ...

    def installed(self, workspace: Workspace) -> Mapping[str, Installed]:
        """The packages of a root, by identity()."""
        ...

    def identity(self, package: LockedPackage) -> str:
        """What tells a package from others in one root, such as `zlib1g:amd64`."""
        ...

    def kernel_release(self, workspace: Workspace, package: str) -> str:
        """The release (`uname -r`) of the one kernel that `package` brings.

        Raises InputError unless it is exactly one.
        """
        ...

    def finalise(self) -> str:
        """A part of a shell script: what a finished root of this family has of its sources."""
        ...
