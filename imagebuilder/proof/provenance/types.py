# SPDX-License-Identifier: Apache-2.0
"""The Provenance box: for each path of a root, who brought it and who changed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from imagebuilder.families.shipped import Checksum

# What a layer above the one that brought a path may have changed.
CONTENT, METADATA = "content", "mode, owner or attributes"


class TraceKind(StrEnum):
    """Who answers for a path as it is now."""

    PACKAGE = "package"
    OVERLAY = "overlay"
    STEP = "step"
    CHANGED = "changed"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Trace:
    """Where one path is from.

    PACKAGE: exactly as `package` ships it.  OVERLAY: exactly what `overlay` places.  STEP: made by
    the first of `steps`.  CHANGED: shipped by `package`, but `change` (CONTENT or METADATA) is what
    the last of `steps` left.  UNEXPLAINED: `change` is not what the build left.

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
        """The layer that last changed the path, "" if none did."""
        return self.steps[-1] if self.steps else ""

    def __str__(self) -> str:
        """In a few words, to follow "by" or a colon."""
        match self.kind:
            case TraceKind.PACKAGE:
                return f"package {self.package}"
            case TraceKind.OVERLAY:
                return f"a file of the overlay {self.overlay}"
            case TraceKind.CHANGED:
                return f"{self.change} changed by {self.step}, shipped by package {self.package}"
            case TraceKind.UNEXPLAINED:
                return f"{self.change} after the build"
        return f"step {self.step}"


@dataclass(frozen=True)
class Provenance:
    """The traces of every path of a root, and of what was removed from it after the build.

    `missing` are paths that packages ship and the root lacks: those that a step removed, by the
    step's title, and under "" those that were never installed.  `installing` are the titles of the
    layers of packages.  `intact` are the files whose content is what their package recorded.
    """

    traces: Mapping[str, Trace]
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    installing: frozenset[str] = frozenset()
    intact: Mapping[str, Checksum] = field(default_factory=dict)

    def who(self, path: str) -> str:
        """Who answers for a path; "nobody known" if the root has none of this name."""
        trace = self.traces.get(path)
        return str(trace) if trace else "nobody known"

    def is_packaged(self, path: str) -> bool:
        """Whether packages alone made a path what it is: they ship it, or their scripts made it."""
        trace = self.traces.get(path)
        if trace is None or trace.kind not in (TraceKind.PACKAGE, TraceKind.STEP):
            return False
        return trace.kind is TraceKind.PACKAGE or self.installing.issuperset(trace.steps)
