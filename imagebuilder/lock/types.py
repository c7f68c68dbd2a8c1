# SPDX-License-Identifier: Apache-2.0
"""The Lock box: the exact inputs of a build, as in `recipes/locks/<profile>.lock`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, StringConstraints

from imagebuilder.decode import Epoch, Moment, Text
from imagebuilder.recipe.rules import INDEX

SCHEMA = 1

# What a lock says becomes parts of paths and of commands on this host, and lines that pip reads.
# Few people read a lock before they build with it, so it may say nothing else.
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, lt=1 << 63)]
Word = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_][0-9A-Za-z_+.:~^-]*$")]
Place = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_][^\x00-\x20/]*$")]
WheelName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$")]
WheelVersion = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.!+_-]*$")]
WheelIndex = Annotated[str, StringConstraints(pattern=INDEX.whole)]
WheelFile = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.!+_-]*\.whl$")]


@dataclass(frozen=True)
class LockedPackage:
    """One binary package; `path` is relative to the source's archive root.

    `installed` is its installed size in bytes according to the archive; 0 if the archive does not
    say or the lock is too old to have it.  It is not part of the package's identity.
    """

    name: Word
    version: Word
    architecture: Word
    sha256: Sha256
    size: Size
    path: Place
    source: str
    installed: Size = field(default=0, compare=False)

    @property
    def nevra(self) -> str:
        """`name=version:architecture`, for people."""
        return f"{self.name}={self.version}:{self.architecture}"


@dataclass(frozen=True)
class LockedWheel:
    """One Python wheel, by file name, size in bytes and sha256."""

    name: WheelName
    version: WheelVersion
    filename: WheelFile
    sha256: Sha256
    size: Size


@dataclass(frozen=True)
class LockedPython:
    """The wheels of one virtual environment; `requirements` is the digest of its requirements.

    `python` is the version (`3.13`) the wheels were chosen for, that of `interpreter` in the root;
    `options` are pip's options in the requirements file for additional indexes.
    """

    path: str
    requirements: str
    python: str
    wheels: tuple[LockedWheel, ...]
    interpreter: str = "/usr/bin/python3"
    options: tuple[WheelIndex, ...] = ()


@dataclass(frozen=True)
class LockedFile:
    """One file of a source package; `path` is relative to the source's archive root."""

    name: FileName
    sha256: Sha256
    size: Size
    path: Place


@dataclass(frozen=True)
class LockedSourcePackage:
    """One source package; the first of `files` names the others."""

    name: Word
    version: Word
    files: tuple[LockedFile, ...]
    source: str


@dataclass(frozen=True)
class LockedBuild:
    """What one build's temporary tree is made of, in addition to the packages of the root.

    `requested` are packages, `requested_sources` source packages that the recipe asked for.
    """

    name: str
    requested: tuple[str, ...]
    requested_sources: tuple[str, ...]
    packages: tuple[LockedPackage, ...]
    source_packages: tuple[LockedSourcePackage, ...]
    python: LockedPython | None = None


@dataclass(frozen=True)
class LockedLayer:
    """What the base (`overlay == ""`) or one overlay adds to those before it.

    `requested` is what the recipe asked for, `packages` what the solver chose, sorted by name.
    `epoch` (seconds) changes only when the packages of this layer or of one before it change.
    """

    overlay: str
    requested: tuple[str, ...]
    packages: tuple[LockedPackage, ...]
    python: tuple[LockedPython, ...]
    epoch: Epoch
    builds: tuple[LockedBuild, ...] = ()


@dataclass(frozen=True)
class LockedSource:
    """What the Release file of one suite of a source said when it was read.

    `date` and `valid_until` are seconds since 1970 (`valid_until` 0: the Release sets no end).
    `origin` is the name of a mirror or a vendor's URI, never a mirror's address; `asked` is the
    digest of everything the recipe says of the source.  `instead` is why the site file replaced a
    vendor's address, "" if it did not.  `release_suite` and `codename` are the names in the Release
    file; older locks lack them.  `dates` are those of `components` that have an index each; `date`
    is then the oldest.
    """

    id: Text
    suite: Text
    components: tuple[Text, ...]
    date: Moment
    valid_until: Moment
    release_sha256: Text
    origin: Text = ""
    asked: Text = ""
    snapshot: Text = ""
    expired_because: Text = ""
    instead: Text = ""
    release_suite: Text = ""
    codename: Text = ""
    dates: tuple[Moment, ...] = ()


@dataclass(frozen=True)
class Lock:
    """The exact inputs of one profile.  `epoch` is SOURCE_DATE_EPOCH of the image."""

    profile: str
    architecture: str
    base: str
    epoch: Epoch
    sources: tuple[LockedSource, ...]
    layers: tuple[LockedLayer, ...]

    @property
    def packages(self) -> tuple[LockedPackage, ...]:
        return tuple(p for layer in self.layers for p in layer.packages)

    def layer(self, overlay: str) -> LockedLayer:
        """The layer of `overlay` ("" for the base).  Raises KeyError."""
        for layer in self.layers:
            if layer.overlay == overlay:
                return layer
        raise KeyError(overlay)
