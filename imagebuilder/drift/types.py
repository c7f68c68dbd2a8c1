# SPDX-License-Identifier: Apache-2.0
"""Types of drift: the content of a boot, and what a reboot would change of it."""

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
    """Whether a part of what a node booted equals what it would boot now."""

    SAME = "same"
    CHANGES = "changes"
    UNKNOWN = "unknown"


class Reboot(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class BootContent:
    """The content of a release or an image, independent of its name.

    `root` is the checksum of the tree, which is equal for equal trees in different commits.
    """

    image: Image
    root: str


@dataclass(frozen=True)
class NodeBoot:
    """A boot: a release and the node's own configuration; None for what is not known (any longer).

    `no_config` is why the configuration is not known.
    """

    release: ReleaseName
    content: BootContent | None
    config: NodeConfig | None
    no_config: str = ""


@dataclass(frozen=True)
class DriftPart:
    """One part of the comparison; `why` has the reasons, none for `same`."""

    state: DriftState
    why: tuple[str, ...] = ()


SAME = DriftPart(DriftState.SAME)


@dataclass(frozen=True)
class NodeDrift:
    """The answer for one node.

    `running` is what it booted last, None if it never reported; `next` is what it would boot now,
    None if nothing.  `parts` has all of PARTS.  `notes` are for a person, in addition to the
    answer.
    """

    node: str
    running: ReleaseName | None
    since: str
    next: ReleaseName | None
    parts: Mapping[str, DriftPart]
    notes: tuple[str, ...] = ()

    @property
    def reboot(self) -> Reboot:
        """Yes if any part changes; no only if all parts are known."""
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
    """A release or image besides `stable`: its name, and how its content differs (empty: equal)."""

    name: str
    differs: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "differs": list(self.differs)}


@dataclass(frozen=True)
class ProfileDrift:
    """The answer for a profile: what nodes get, and what else exists.

    `stable` is empty if there is none.  `image` is the newest one in the store, `published` whether
    the tree has it.  `builds` is what the recipe with its lock builds now; `reasons` are why that
    is not built yet, and `problem` why it is not known.
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
