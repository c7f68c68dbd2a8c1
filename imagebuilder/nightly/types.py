# SPDX-License-Identifier: Apache-2.0
"""The options and the result of a nightly run: plain values, stored as JSON for the history."""

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
    """The stages of a profile, in order."""

    LOCK = "lock"
    PLAN = "plan"
    BUILD = "build"
    PROVE = "prove"
    PUBLISH = "publish"
    TEST = "test"
    PROMOTE = "promote"
    ROLLOUT = "rollout"


class Ending(StrEnum):
    """How a profile ended in a run.

    UNCHANGED: nothing new upstream or in the recipe, and the newest image is released and tested.
    FRESH: a new release passed its boot test; `stable` was not to be moved.  PROMOTED: the same,
    and it is now stable, perhaps after a roll-out.  FAILED: `stable` is unchanged.
    """

    UNCHANGED = "unchanged"
    FRESH = "fresh"
    PROMOTED = "promoted"
    FAILED = "failed"


@dataclass(frozen=True)
class ProfileRun:
    """One profile in a run.

    `stage` is the last one that was begun; if `ending` is FAILED, it is the one that failed, and
    `fault` says why.  `warnings` are problems that did not end it, such as a lock that could not be
    refreshed.  `seconds` are by stage.  `version` is the image of this run, `previous` the
    candidate before it; `candidate` and `stable` are where those channels point at the end ("" for
    nowhere).  `published` are bytes added to the netboot tree, `size` those of the root.  `proof`
    is the proof's headline, `report` the id of the boot test's report.  `log` is a file in the
    run's folder with the details of a failure.  `lock` is the digest of the lock that it wrote to
    the lock file, or was about to write; "" for none.
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
    lock: str = ""

    @property
    def failed(self) -> bool:
        return self.ending is Ending.FAILED


@dataclass(frozen=True)
class Pruned:
    """What the run removed afterwards: names, and the bytes it freed."""

    images: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    freed: Amount = 0


@dataclass(frozen=True)
class NightlyRun:
    """A nightly run.  `id` is `YYYYMMDDTHHMMSSZ-PID`; `started` ISO 8601 in UTC.

    `finished` is False in the record of a run that was cut off (kill -9, power failure); `planned`
    are the profiles to process, in order, and `profiles` the processed ones.  `committed` is the
    git commit of the locks, "" for none; `warnings` concern no single profile.  `begun` is a
    profile in progress that was about to change something, and `untold` is what killed runs did to
    profiles that this run has not processed.
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
    begun: ProfileRun | None = None
    untold: tuple[ProfileRun, ...] = ()
    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def failed(self) -> bool:
        """Whether any part of it needs a person."""
        return not self.finished or any(profile.failed for profile in self.profiles)


# docs/nightly.md shows it.
NIGHTLY_RUN = JsonFile(
    NightlyRun, 1, "only the history needs it: remove it, or ignore it", derived=("failed",)
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
    """Options of a nightly run.

    `profiles` in order; `folder` is for the report and the history; `promote` moves `stable`; the
    newest `keep` images and releases of each profile are kept, as are those pinned, kept, in a
    channel or in use; `commit` commits the locks.  For `patience` seconds in total, a run waits and
    retries what an archive or a full disk prevented.  With `rollout`, what passed is rolled out
    instead of promoted.
    """

    profiles: tuple[str, ...]
    folder: Path
    promote: bool = False
    keep: int = 5
    commit: bool = False
    patience: float = 3600.0
    rollout: NightlyRollout | None = None
