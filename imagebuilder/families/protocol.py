# SPDX-License-Identifier: Apache-2.0
"""The interface of a package manager to the rest of imagebuilder.

    Recipe -- solve --> Solution -- (wheels, epochs: resolve.py) --> Lock
    Lock -- fetch --> pool -- bootstrap, install --> root -- installed, kernel_release --> facts
    root, read from outside -- shipped_files --> facts of the proof and of a comparison

A family is a value without state.  Packages are locked by digest before anything is built: a build
installs exactly these files, without a choice by a solver and without a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from imagebuilder.families.shipped import RootFiles, ShippedFile
from imagebuilder.families.tool import Tool
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.kept import Names
from imagebuilder.lock.patience import Patience, Progress
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import Lock, LockedPackage, LockedSource, LockedSourcePackage
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.workspace import Workspace

# Called with verified files and their packages.
Keep = Callable[[Sequence[tuple[Path, LockedPackage]]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Archives:
    """Addresses of mirrors by name, and the folder for indexes."""

    mirrors: Mapping[str, str]
    cache: Path


@dataclass(frozen=True)
class Chosen:
    """What was chosen for one request; only builds have `sources`, the source packages."""

    request: Request
    packages: tuple[LockedPackage, ...]
    sources: tuple[LockedSourcePackage, ...] = ()


@dataclass(frozen=True)
class Solution:
    """What was chosen for each request, in their order, and the state of the suites."""

    chosen: tuple[Chosen, ...]
    sources: tuple[LockedSource, ...]


@dataclass(frozen=True)
class Packages:
    """Exactly the locked packages to install; `suite` is the base's."""

    suite: str
    architecture: str
    packages: tuple[LockedPackage, ...]
    path_excludes: tuple[str, ...]
    epoch: int


@dataclass(frozen=True)
class Engine:
    """What makes a first layer: the host's program, and the version of our code around it.

    `version` is increased when the engine makes a different result from the same packages.
    """

    tool: Tool
    version: int = 1


@dataclass(frozen=True)
class Installed:
    """A package in a root: its size in bytes (0: unknown), and whether it is fully installed."""

    version: str
    size: int
    whole: bool


@dataclass(frozen=True)
class SecretFile:
    """Where a program may keep a secret: a pattern of whole paths, and one of their content."""

    name: str
    path: str
    holds: bytes


@dataclass(frozen=True)
class AnsibleSetup:
    """What ansible-playbook finds in a root.

    `facts` are those of the package manager, `versions` those in os-release(5) by suite; `kernel`
    returns the release of the kernel that a package has, "" if it has none.  `files` are in
    /run/imagebuilder/ansible while a playbook runs with `environment`; `covers` has the names of
    those that the playbook finds in the place of a root's file, by its path.
    """

    facts: Mapping[str, str]
    versions: Mapping[str, str]
    kernel: Callable[[LockedPackage], str]
    files: Mapping[str, str]
    environment: Mapping[str, str]
    covers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Unsigned:
    """A line of a file that allows packages without a valid signature."""

    path: str
    line: int
    what: str


class Family(Protocol):
    """A package manager and the distributions it makes."""

    @property
    def name(self) -> str:
        """`package-manager` of a base."""

    @property
    def engines(self) -> Mapping[str, Engine]:
        """The makers of first layers, by `engine` of a base."""

    @property
    def bootstrap_version(self) -> str:
        """The version of the code behind bootstrap(), as a layer's inputs have it."""

    @property
    def install_version(self) -> str:
        """The version of the code behind install(), as a layer's inputs have it."""

    @property
    def set_up(self) -> re.Pattern[str]:
        """Matches a line of an installation for each package, with its name as first group."""

    @property
    def database(self) -> str:
        """The path in a root of the record of its packages."""

    @property
    def list_packages(self) -> tuple[str, ...]:
        """The command that prints in a root its packages, a line each: the name, then its state,
        which is `installed` if its installation is complete.
        """

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Globs of what its programs leave in a root and can recreate: locks, logs, caches."""

    @property
    def site_files(self) -> tuple[str, ...]:
        """Globs of what may name a site's accounts and proxies, which no image keeps."""

    @property
    def secrets(self) -> tuple[SecretFile, ...]:
        """Places for secrets that only roots of this family have."""

    @property
    def ansible(self) -> AnsibleSetup: ...

    # Recipe -> Lock

    @property
    def default_mirrors(self) -> Mapping[str, str]:
        """Addresses of the distributions' own archives by name, for hosts without a mirror."""

    def suite_index(self, mirror: str, suite: str, component: str) -> str:
        """The path in the archive of `mirror` of the index that is read first; it may be that of
        all of the suite's components.
        """

    def keyring_package(self, keyring: Path) -> str:
        """The host's package that contains a keyring."""

    def find_mirrors(self, site: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
        """Addresses of archives by name, from the environment, the site file and this host."""

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

        With `keep`, versions of `previous` that an archive still has are kept; with `allow_older`,
        an archive may be older than when `previous` was made.  `progress` gets what happens and, in
        lines that start with `note:`, what a person should know.  Raises InputError (all unknown
        packages, and what cannot be satisfied), HostError (a mirror that is not reachable) and
        WorkError (an invalid signature).
        """

    def read_sources(
        self, sources: Sequence[Source], archives: Archives, architecture: str, progress: Tell
    ) -> tuple[LockedSource, ...]:
        """The verified current state of the archives of `sources`.  Raises as solve()."""

    def find_suites(self, recipe: Recipe, archives: Archives, names: Sequence[str]) -> Suites:
        """The suites that have these packages, as of the last solve()."""

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
        """Fetch packages into `folder`, resuming unfinished files.

        Raises HostError if a mirror is not reachable or too slow or the disk is full, WorkError for
        a package that is gone or has other content.
        """

    def glibc(self, packages: Iterable[LockedPackage]) -> str:
        """The version of the GNU C library in `packages`, "" if none: wheels depend on it."""

    def python(self, packages: Iterable[LockedPackage], interpreter: str) -> str:
        """The upstream version of the package with `interpreter`, "" if none."""

    def names(
        self, folder: Path, packages: Sequence[LockedPackage], *, whole: bool
    ) -> Sequence[Names]:
        """The units and accounts that each package in the pool `folder` may add.

        With `whole`, also reads files that are slow to read.  Raises WorkError for a missing
        package.
        """

    # pool -> root

    def check_host(self) -> None:
        """Raise HostError unless the host has what install() and serving packages need."""

    def bootstrap(self, engine: str, packages: Packages, workspace: Workspace) -> None:
        """Make the first layer.  Engines are interchangeable: what else they leave is removed."""

    def install(self, packages: Packages, workspace: Workspace) -> None:
        """Add packages to a root.  Raises WorkError."""

    def unpack_source(
        self, source: LockedSourcePackage, folder: Path, workspace: Workspace
    ) -> None:
        """Unpack a source package at `folder`/NAME, with the root's programs."""

    def installed(self, workspace: Workspace) -> Mapping[str, Installed]:
        """The packages in a root, by identity()."""

    def identity(self, package: LockedPackage) -> str:
        """The unique name of a package in a root, such as `zlib1g:amd64`."""

    def kernel_release(self, workspace: Workspace, package: str) -> str:
        """The release (`uname -r`) of the one kernel that `package` installs.

        Raises InputError unless it is exactly one.
        """

    # root, read from outside

    def shipped_files(self, root: RootFiles) -> Mapping[str, ShippedFile]:
        """Every path that a package in the root ships, even if it does not exist.

        If a top-level folder is a symlink, such as /lib, paths are those it leads to.  A folder of
        several packages is listed for one of them; the package manager's records of a package count
        as its files.  Configuration files that a package no longer ships are included.
        """

    def package_versions(self, root: RootFiles) -> Mapping[str, str]:
        """The versions of the packages in the root, by name."""

    def find_unsigned(self, root: RootFiles) -> Sequence[Unsigned]:
        """Where the root is configured to install packages without a trusted signature."""

    def purl(self, package: LockedPackage, distribution: str, suite: str) -> str:
        """The package URL (https://github.com/package-url/purl-spec) of a package.

        A file of a source package has the architecture `source`.
        """

    def package_with(self, path: str) -> str:
        """The package with a firmware file (absolute path) or a library (its name only), in words
        for a hint; "" if unknown.
        """

    def is_upgrade(self, words: Sequence[str]) -> bool:
        """Whether a command line, program first, upgrades the packages of a running system."""

    def find_upgrading(self, root: RootFiles) -> str:
        """The file that lets the root's own timers upgrade packages, "" if none does."""

    def is_kernel_headers(self, package: str) -> bool:
        """Whether `package` has the headers that modules are built with."""

    def is_kernel_package(self, package: str, release: str) -> bool:
        """Whether `package` has the kernel `release`, or modules that were built with it."""

    def finalise(self) -> str:
        """A part of a shell script that writes the sources of a finished root."""
