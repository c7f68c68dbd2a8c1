# SPDX-License-Identifier: Apache-2.0
"""Provenance: for each path of a root, its origin and what changed it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from imagebuilder.families.shipped import Checksum
from imagebuilder.folders import entries_below
from imagebuilder.root import Root

# Paths with their lstat(2).
Entries = Mapping[str, os.stat_result]
# What a later layer may have changed of a path.
CONTENT, METADATA = "content", "mode, owner or attributes"


def walk_root(root: Root) -> Iterator[tuple[str, os.stat_result]]:
    """Every path below a root with its lstat(2)."""
    prefix = len(os.fspath(root.path))
    for entry in entries_below(root.path):
        yield entry.path[prefix:], entry.stat(follow_symlinks=False)


class TraceKind(StrEnum):
    """What accounts for a path as it is now."""

    PACKAGE = "package"
    OVERLAY = "overlay"
    STEP = "step"
    CHANGED = "changed"


@dataclass(frozen=True)
class Trace:
    """The origin of one path.

    PACKAGE: exactly as `package` ships it.  OVERLAY: exactly what `overlay` places.  STEP: made by
    the first of `steps`.  CHANGED: shipped by `package`, but the last of `steps` changed `change`
    (CONTENT or METADATA).

    `package` is `name version`; `steps` are the titles of the layers that made or changed the path,
    in the order of the build.
    """

    path: str
    kind: TraceKind
    steps: tuple[str, ...] = ()
    package: str = ""
    overlay: str = ""
    change: str = ""

    @property
    def step(self) -> str:
        """The layer that last changed the path, "" if none."""
        return self.steps[-1] if self.steps else ""

    def __str__(self) -> str:
        """A few words to follow "by" or a colon."""
        match self.kind:
            case TraceKind.PACKAGE:
                return f"package {self.package}"
            case TraceKind.OVERLAY:
                return f"a file of the overlay {self.overlay}"
            case TraceKind.CHANGED:
                return f"{self.change} changed by {self.step}, shipped by package {self.package}"
        return f"step {self.step}"


@dataclass(frozen=True)
class Compared:
    """Files that were compared with the checksum that their package recorded, each with that
    record: `intact` have this content, `altered` another.
    """

    intact: Mapping[str, Checksum] = field(default_factory=dict)
    altered: Mapping[str, Checksum] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """The traces of every path of a root, and of those removed from it after the build.

    `missing` are paths that packages ship but the root lacks, by the title of the step that removed
    them; "" for those never installed.  `installing` are the titles of layers that install
    packages.  `compared` are the files of which packages recorded a checksum.
    """

    traces: Mapping[str, Trace]
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    installing: frozenset[str] = frozenset()
    compared: Compared = field(default_factory=Compared)

    def who(self, path: str) -> str:
        """What accounts for a path; "origin unknown" if the root does not have it."""
        trace = self.traces.get(path)
        return str(trace) if trace else "origin unknown"

    def is_packaged(self, path: str) -> bool:
        """Whether the path comes from packages alone: they ship it, or their scripts made it."""
        trace = self.traces.get(path)
        if trace is None or trace.kind not in (TraceKind.PACKAGE, TraceKind.STEP):
            return False
        return trace.kind is TraceKind.PACKAGE or self.installing.issuperset(trace.steps)
