# SPDX-License-Identifier: Apache-2.0
"""The Recipe box: what `load_recipe` returns after merging files, vars and the site.

Everything here is resolved: `extends:` is followed, templates are rendered, `when:` is decided,
files are digested.  Nothing here reads a file again, except that `TreeFile.source` and
`Script.source` say where the bytes with that digest are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.expectations import Expectations, joined
from imagebuilder.recipe.model_engine import EngineModel
from imagebuilder.rootkind import RootKind


@dataclass(frozen=True)
class ExpiredRelease:
    """A person's explicit consent to use a Release file past its Valid-Until."""

    accept_days: int
    because: str


@dataclass(frozen=True)
class Source:
    """One source of packages.

    `mirror` names an entry of the host's mirrors, or `uri` is a vendor's own.  `key` is the OpenPGP
    certificate(s) that may sign it: a keyring of the host for a distribution, a file of the overlay
    for a vendor; `fingerprints` pins the latter.  With `pin_version` the packages of `pin_packages`
    are taken at that version.  `streams` are those of modules (NAME:STREAM) that are enabled.
    `instead` is why the site file replaced the vendor's address or the archive's keyring, "" if it
    did not.
    """

    id: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key: Path
    mirror: str = ""
    uri: str = ""
    fingerprints: tuple[str, ...] = ()
    pin_packages: tuple[str, ...] = ("*",)
    pin_priority: int = 500
    pin_version: str = ""
    snapshot: str = ""
    expired_release: ExpiredRelease | None = None
    streams: tuple[str, ...] = ()
    instead: str = ""


@dataclass(frozen=True)
class Base:
    name: str
    distribution: str
    suite: str
    architecture: str
    engine: str
    package_manager: str
    packages: tuple[str, ...]
    kernel: str
    sources: tuple[Source, ...]
    path_excludes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TreeFile:
    """One file or symlink an overlay puts into the root.

    `target` is absolute in the root.  A template's text is in `content`; for plain files `content`
    is None and the bytes are at `source`; for links `link` is the target text and the rest empty.
    """

    target: str
    digest: str
    mode: int
    owner: str = "root"
    group: str = "root"
    source: Path | None = None
    content: bytes | None = None
    link: str | None = None


@dataclass(frozen=True)
class Script:
    """A program of the overlay that runs inside the root, after the overlay's files are there."""

    name: str
    digest: str
    source: Path
    network: bool = False


@dataclass(frozen=True)
class PythonEnv:
    """A virtual environment at `path` in the root, from hash-locked requirements."""

    path: str
    requirements: Path
    digest: str
    interpreter: str = "/usr/bin/python3"


@dataclass(frozen=True)
class User:
    """A user account; `groups` are supplementary and must exist in the root or be declared."""

    name: str
    uid: int | None
    home: str
    shell: str
    groups: tuple[str, ...]
    system: bool
    comment: str


@dataclass(frozen=True)
class Group:
    """A group; an existing group of that name is kept."""

    name: str
    gid: int | None
    system: bool


@dataclass(frozen=True)
class Units:
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()


class NameKind(StrEnum):
    """What an overlay refers to by name and something else must provide."""

    UNIT = "unit"
    GROUP = "group"
    USER = "user"


@dataclass(frozen=True)
class Named:
    """A name that must exist in the root when an overlay is configured.

    `where` is the place for people at which it is written, `key` the path of keys to it.
    """

    kind: NameKind
    name: str
    where: str
    key: str


@dataclass(frozen=True)
class Modules:
    load: tuple[str, ...] = ()
    blacklist: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Build:
    """Something built in a tree that is thrown away; what it installs becomes a layer."""

    name: str
    script: Script
    packages: tuple[str, ...] = ()
    source_packages: tuple[str, ...] = ()
    python: PythonEnv | None = None
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Playbook:
    """An Ansible playbook for the root: `name` below the folder `project`.

    `files` are all files of that folder with their digests.  `groups` are the inventory's groups
    of the image; if the recipe named them, plays for other groups are left out (`limited`).
    """

    name: str
    project: Path
    files: Mapping[str, Json]
    vars: Mapping[str, Json]
    groups: tuple[str, ...] = ()
    limited: bool = False
    network: bool = False


@dataclass(frozen=True)
class Slim:
    """What to remove because the profile's nodes do not need it.

    `code` are the targets that stay in the files of the globs `code_in`; `firmware` are folders
    below /usr/lib/firmware; `modules` globs below the kernel's modules; `unlinked` globs of
    libraries.
    """

    code: tuple[str, ...] = ()
    code_in: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grants:
    """Ways to become root that an overlay opens: names of accounts, `%groups` and groups, and globs
    of paths.
    """

    sudo: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    root_accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    setuid: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    consoles: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class AllowedSecret:
    """A glob of paths where a secret is intended, and why."""

    path: str
    because: str


@dataclass(frozen=True, kw_only=True)
class OverlayKeys:
    """The keys of an overlay that the rules in OverlayFile resolve on their own."""

    initrd: bool = False
    packages: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    units: Units = Units()
    users: tuple[User, ...] = ()
    groups: tuple[Group, ...] = ()
    modules: Modules = Modules()
    sysctl: tuple[tuple[str, str], ...] = ()
    cmdline: tuple[str, ...] = ()
    prune: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()
    grants: Grants = Grants()
    allow_secret: tuple[AllowedSecret, ...] = ()
    slim: Slim = Slim()
    engine: EngineModel | None = None


@dataclass(frozen=True)
class Overlay(OverlayKeys):
    """One overlay, resolved against the vars of the profile."""

    name: str
    path: Path
    sources: tuple[Source, ...] = ()
    files: tuple[TreeFile, ...] = ()
    scripts: tuple[Script, ...] = ()
    python: tuple[PythonEnv, ...] = ()
    checks: tuple[Path, ...] = ()
    builds: tuple[Build, ...] = ()
    playbooks: tuple[Playbook, ...] = ()
    expectations: Expectations = field(default_factory=Expectations)
    named: tuple[Named, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Hardware:
    """A device the profile is for, by PCI id (`1002:7480`) and accelerator target (`gfx1102`).

    `assume` is why an unknown device will work; `chip` is the project's own description of it, None
    for a shipped card.
    """

    pci: str
    name: str
    target: str = ""
    assume: str | None = None
    chip: Chip | None = None

    @property
    def assumption(self) -> str:
        """The assumption for people; "" for a known device."""
        return f"{self.pci} ({self.name}): {self.assume}" if self.assume else ""


@dataclass(frozen=True)
class Boot:
    """How nodes of the profile boot: the kind of root, and its kernel command line."""

    root: RootKind
    console: tuple[str, ...]
    cmdline: tuple[str, ...]


@dataclass(frozen=True)
class ModuleSigning:
    """The site's key for kernel modules: PEM files, and the sha256 of the certificate's DER."""

    key: Path
    certificate: Path
    digest: str


@dataclass(frozen=True)
class Recipe:
    """A profile with everything it names, ready to be locked and planned."""

    profile: str
    description: str
    base: Base
    overlays: tuple[Overlay, ...]
    vars: Mapping[str, Json]
    hardware: tuple[Hardware, ...]
    boot: Boot
    signing: ModuleSigning | None = None

    @property
    def initrd_overlays(self) -> tuple[Overlay, ...]:
        """The overlays that the initrd is made from: up to the last one with `initrd`."""
        marked = [number for number, overlay in enumerate(self.overlays) if overlay.initrd]
        return self.overlays[: marked[-1] + 1] if marked else self.overlays

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source of packages, the base's first."""
        return (*self.base.sources, *(s for o in self.overlays for s in o.sources))

    @property
    def cmdline(self) -> tuple[str, ...]:
        """The kernel command line: consoles, the overlays' words in order, then the recipe's."""
        consoles = tuple(f"console={name}" for name in self.boot.console)
        overlays = tuple(word for overlay in self.overlays for word in overlay.cmdline)
        return (*consoles, *overlays, *self.boot.cmdline)

    @property
    def listens(self) -> tuple[str, ...]:
        """The ports that a node may listen on, such as `22/tcp`, each once, sorted."""
        return tuple(sorted({port for overlay in self.overlays for port in overlay.listens}))

    @property
    def grants(self) -> dict[str, Grants]:
        """The grants by overlay, without overlays that grant nothing."""
        return {o.name: o.grants for o in self.overlays if o.grants != Grants()}

    @property
    def allow_secret(self) -> tuple[AllowedSecret, ...]:
        return tuple(secret for overlay in self.overlays for secret in overlay.allow_secret)

    @property
    def expectations(self) -> Expectations:
        return joined(Expectations, (overlay.expectations for overlay in self.overlays))
