# SPDX-License-Identifier: Apache-2.0
"""What drift is about: what a boot consists of, and what of it a reboot would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from imagebuilder.digest import Json
from imagebuilder.image.types import Image
from imagebuilder.nodes.config import NodeConfig
from imagebuilder.tree import ReleaseName

PARTS = ("kernel", "root", "cmdline", "files")


class DriftState(StrEnum):
    """Whether a part of what a node booted is what it would boot now."""

    SAME = "same"
    CHANGES = "changes"
    UNKNOWN = "unknown"


class Reboot(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class BootContent:
    """What a release or an image is, whatever it is called.

    `root` is the checksum of the tree, which is the same for equal trees of other commits.
    """

    image: Image
    root: str


@dataclass(frozen=True)
class NodeBoot:
    """A boot: a release and what was given with it; None for what nobody knows (any more).

    `ungiven` is why nobody knows what was given.
    """

    release: ReleaseName
    content: BootContent | None
    given: NodeConfig | None
    ungiven: str = ""


@dataclass(frozen=True)
class DriftPart:
    """One part of the comparison; `why` are reasons, for `same` none."""

    state: DriftState
    why: tuple[str, ...] = ()


SAME = DriftPart(DriftState.SAME)


@dataclass(frozen=True)
class NodeDrift:
    """The answer for one node.

    `running` is what it booted last, None when it never reported; `next` is what it would boot now,
    None when that is nothing.  `parts` has every one of PARTS.  `notes` are what a person should
    know beside the answer.
    """

    node: str
    running: ReleaseName | None
    since: str
    next: ReleaseName | None
    parts: Mapping[str, DriftPart]
    notes: tuple[str, ...] = ()

    @property
    def reboot(self) -> Reboot:
        """One change is enough for yes; what is unknown leaves no `no`."""
        states = {part.state for part in self.parts.values()}
        if DriftState.CHANGES in states:
            return Reboot.YES
        return Reboot.UNKNOWN if DriftState.UNKNOWN in states else Reboot.NO

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "node": self.node,
            "running": str(self.running) if self.running else None,
            "since": self.since or None,
            "boots": str(self.next) if self.next else None,
            "reboot": str(self.reboot),
            **{
                name: {"state": str(part.state), "why": list(part.why)}
                for name, part in self.parts.items()
            },
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Other:
    """Something beside `stable`: its name, and in what its content differs (nothing: the same)."""

    name: str
    differs: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "differs": list(self.differs)}


@dataclass(frozen=True)
class ProfileDrift:
    """The answer for a profile: what nodes get, and what else there is.

    `stable` is empty when there is none.  `image` is the newest one of the store, `published`
    whether the tree has it.  `builds` is what the recipe with its lock builds now; `reasons` are
    why that is no image yet, and `problem` why nobody can tell.
    """

    profile: str
    stable: str
    candidate: Other | None
    image: Other | None
    published: bool
    builds: str
    reasons: tuple[str, ...]
    problem: str = ""

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "profile": self.profile,
            "stable": self.stable or None,
            "candidate": self.candidate.as_json() if self.candidate else None,
            "image": self.image.as_json() | {"published": self.published} if self.image else None,
            "recipe": {
                "builds": self.builds or None,
                "reasons": list(self.reasons),
                "problem": self.problem or None,
            },
        }
