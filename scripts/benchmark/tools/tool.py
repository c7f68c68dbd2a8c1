# SPDX-License-Identifier: Apache-2.0
"""What a tool of the build table is asked for, and what it has to show for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from imagebuilder.process import Word

# What is mounted or left running goes with it; every tool but ours is run so.
PRIVATE: tuple[Word, ...] = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--")
# The line by which a changed file is told from the one before.
MARK = "# changed by the benchmark"


class Kind(StrEnum):
    """What a build has to do, in the order in which a tool is asked."""

    COLD = "cold"  # nothing is there but the packages, in a local archive
    NOOP = "noop"  # nothing has changed since
    LAST = "last"  # a configuration file of the last overlay has
    MIDDLE = "middle"  # an overlay in the middle wants a package more


@dataclass(frozen=True)
class Order:
    """What every tool makes: a root with `packages` and the overlays' files, then its initrd.

    `repository` is the local archive, which has the package `added` too.  `boot_files` is a tar
    file of what dracut reads, `files` a folder with all that the overlays place; `changing` is the
    one file of it that changes, as an absolute path in the root.
    """

    profile: str
    suite: str
    architecture: str
    packages: tuple[str, ...]
    added: str
    path_excludes: tuple[str, ...]
    repository: Path
    boot_files: Path
    files: Path
    changing: str
    epoch: int


@dataclass(frozen=True)
class Outcome:
    """What proves that all did the same work: packages installed, kernel and initrd."""

    packages: int
    vmlinuz: str
    initrd_size: int


@dataclass(frozen=True)
class Made:
    """A bootable result as plain files: the folder of the root, the kernel and the initrd.

    `early` is the first part of the initrd, where that is a file of its own.
    """

    root: Path
    vmlinuz: Path
    initrd: Path
    early: Path | None = None

    @property
    def places(self) -> tuple[Path, ...]:
        """Everything, each part once."""
        outside = (p for p in (self.vmlinuz, *self.initrds) if not p.is_relative_to(self.root))
        return (self.root, *outside)

    @property
    def initrds(self) -> tuple[Path, ...]:
        """The files of the initrd."""
        return (self.initrd,) if self.early is None else (self.early, self.initrd)


class Tool(Protocol):
    """A column.  begin() comes first, end() last; build() is what is measured.

    `full` says for which kinds a tool has nothing better than its cold build, and why; for those
    neither change() nor build() is called.  `notes` is what a reader must know of how it is run.
    """

    name: str
    full: Mapping[Kind, str]
    notes: str

    def version(self) -> str:
        """Its version, `absent` when this host does not have it."""
        ...

    def missing(self) -> str:
        """Why it cannot be run here, "" when it can."""
        ...

    def begin(self, order: Order, folder: Path, log: Path) -> None:
        """Lay out its configuration in `folder`, which is empty; nothing is cached."""
        ...

    def change(self, kind: Kind) -> None:
        """Change what the next build is to notice."""
        ...

    def build(self, kind: Kind) -> None:
        """Make the result.  Raises WorkError."""
        ...

    def made(self) -> Made:
        """The result of the last build as files, unpacked on nobody's time."""
        ...

    def end(self) -> None:
        """Remove all that it left."""
        ...
