# SPDX-License-Identifier: Apache-2.0
"""What a night is asked for and what came of it: plain values, kept as JSON for the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import ConfigDict

from imagebuilder.decode import Amount, JsonFile, Seconds, UtcTime
from imagebuilder.errors import Fault
from imagebuilder.fleet.rollout.types import RolloutTerms
from imagebuilder.lock.changes import PackageChange


class NightlyStage(StrEnum):
    """What a profile goes through, in this order."""

    LOCK = "lock"
    PLAN = "plan"
    BUILD = "build"
    PROVE = "prove"
    PUBLISH = "publish"
    TEST = "test"
    PROMOTE = "promote"
    ROLLOUT = "rollout"


class Ending(StrEnum):
    """How a profile's night ended.

    UNCHANGED: nothing new upstream or in the recipe, and the newest image is released and tested.
    FRESH: a release that passed its boot test; `stable` was not to be moved.
    PROMOTED: the same, and it is stable now, also after a roll-out.  FAILED: `stable` is what it
    was.
    """

    UNCHANGED = "unchanged"
    FRESH = "fresh"
    PROMOTED = "promoted"
    FAILED = "failed"


@dataclass(frozen=True)
class ProfileRun:
    """One profile's night.

    `stage` is the last one that was begun, the one that failed when `ending` is FAILED, and `fault`
    what was wrong then.  `warnings` are what did not go as it should and yet did not end it, such
    as a lock that was not refreshed.  `seconds` are by stage.  `version` is the image of the night,
    `previous` what was candidate before it; `candidate` and `stable` are where those channels point
    at the end ("" for nowhere).  `published` are bytes that came into the netboot tree, `size`
    those of the root.  `proof` is the proof's headline, `report` the id of the boot test's.  `log`
    is a file of the night's folder with all that is known of a failure.
    """

    profile: str
    ending: Ending
    stage: NightlyStage
    seconds: Mapping[NightlyStage, Seconds] = field(default_factory=dict)
    fault: Fault | None = None
    log: str = ""
    version: str = ""
    previous: str = ""
    candidate: str = ""
    stable: str = ""
    changes: tuple[PackageChange, ...] = ()
    reasons: tuple[str, ...] = ()
    published: Amount = 0
    size: Amount = 0
    proof: str = ""
    report: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.ending is Ending.FAILED


@dataclass(frozen=True)
class Pruned:
    """What the night removed afterwards: names, and the bytes the disk has more."""

    images: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    freed: Amount = 0


@dataclass(frozen=True)
class NightlyRun:
    """A night.  `id` is `YYYYMMDDTHHMMSSZ-PID`; `started` ISO 8601 in UTC; `seconds` its length.

    `finished` is False in the record of a night that never came to its end (kill -9, power);
    `planned` are the profiles that it is to do, in order, and `profiles` those that are done.
    `committed` is the git commit of the locks, "" for none; `warnings` concern no single profile.
    """

    id: str
    started: UtcTime
    host: str
    tool: str
    seconds: Seconds = 0.0
    finished: bool = False
    planned: tuple[str, ...] = ()
    profiles: tuple[ProfileRun, ...] = ()
    pruned: Pruned = Pruned()
    committed: str = ""
    warnings: tuple[str, ...] = ()
    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def failed(self) -> bool:
        """Whether anything of it needs a person."""
        return not self.finished or any(profile.failed for profile in self.profiles)


# docs/nightly.md shows it.
NIGHTLY_RUN = JsonFile(
    NightlyRun,
    1,
    "nothing needs it but the history: remove it, or leave it out",
    derived=("failed",),
)


@dataclass(frozen=True)
class NightlyRollout:
    """How releases are rolled out, and in which maintenance window (imagebuilder.window)."""

    window: str
    terms: RolloutTerms
    canary: str = ""
    batch: str = "25%"


@dataclass(frozen=True)
class NightlyOptions:
    """What the person asked for.

    `profiles` in order; `folder` keeps the report and the history of nights; `promote` moves
    `stable`; `keep` images and releases of each profile stay besides those that are pinned, kept,
    in a channel or in use; `commit` commits the locks.  For `patience` seconds in all, a night
    waits and tries again what an archive or a full disk was in the way of.  With `rollout`, what
    passed is rolled out instead of promoted.
    """

    profiles: tuple[str, ...]
    folder: Path
    promote: bool = False
    keep: int = 5
    commit: bool = False
    patience: float = 3600.0
    rollout: NightlyRollout | None = None
