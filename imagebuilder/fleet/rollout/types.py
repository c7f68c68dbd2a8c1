# SPDX-License-Identifier: Apache-2.0
"""The Rollout box: which release goes where, how far each node is, and what was asked for.

waiting -> draining -> rebooting -> checking -> done
              |            |            |
         left alone        +--failed----+--> returning -> returned, or lost
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from imagebuilder.decode import JsonFile, Seconds, ZonedTime, ZonedTimeIfAny
from imagebuilder.digest import Json
from imagebuilder.fleet.health import Verdict, one_line
from imagebuilder.nodes.evidence.seen import AnyText, matching
from imagebuilder.tree import Name, ReleaseName

NodeName = Annotated[str, matching("[a-z0-9][a-z0-9-]{0,62}")]
OneLine = Annotated[str, AfterValidator(one_line)]


class RolloutStatus(StrEnum):
    """How a roll-out is."""

    RUNNING = "running"
    PAUSED = "paused"  # no further node is begun
    PROMOTING = "promoting"  # every node has the release: stable follows
    DONE = "done"
    STOPPED = "stopped"  # something failed
    ABORTING = "aborting"  # every node goes back
    ABORTED = "aborted"


class PowerCut(StrEnum):
    """Whether the power of a silent node has to be cut, and was."""

    NONE = "no"
    DUE = "due"
    MADE = "made"


class RolloutStage(StrEnum):
    """How far a node is."""

    WAITING = "waiting"  # not touched
    DRAINING = "draining"
    REBOOTING = "rebooting"
    CHECKING = "checking"  # it runs the release; its health is not known yet
    DONE = "done"
    LEFT = "left alone"  # never rebooted, for a reason that is not the release's
    RETURNING = "returning"  # it failed, and is to run the old release
    RETURNED = "returned"
    LOST = "lost"  # it failed, and runs something else than the old release


IN_FLIGHT = (
    RolloutStage.DRAINING,
    RolloutStage.REBOOTING,
    RolloutStage.CHECKING,
    RolloutStage.RETURNING,
)
FAILED = (RolloutStage.RETURNING, RolloutStage.RETURNED, RolloutStage.LOST)
INTERRUPTED = "interrupted"
ENDED = (RolloutStatus.DONE, RolloutStatus.STOPPED, RolloutStatus.ABORTED)


@dataclass(frozen=True)
class RolloutNode:
    """A node of a roll-out, in `phase` 0 (canary), 1 (batch) or 2 (all others).

    `since` is when its stage began (ISO 8601 in UTC).  `boot_id` is the boot that is to end, and
    while it is checked the one that runs.  `why` says why it failed or was left alone.  `channel`
    is the key of its own in nodes.yaml that its pin replaces.  `touched` is whether it was ever
    pinned, `drained` whether work is to be let onto it again, `powered` whether its power can be
    cut.
    """

    name: NodeName
    phase: int
    stage: RolloutStage = RolloutStage.WAITING
    since: ZonedTimeIfAny = ""
    boot_id: str = ""
    why: OneLine = ""
    channel: str = ""
    touched: bool = False
    drained: bool = False
    powered: bool = False
    cut: PowerCut = PowerCut.NONE

    @property
    def failed(self) -> bool:
        return self.stage in FAILED

    @property
    def in_flight(self) -> bool:
        return self.stage in IN_FLIGHT

    @property
    def goes_back(self) -> bool:
        """Whether work is to end before the node returns; one that gets the release has no why."""
        return self.stage is RolloutStage.DRAINING and bool(self.why)


@dataclass(frozen=True)
class RolloutTerms:
    """What a person asked for.  `timeout` is for a reboot and its verdict, `drain_timeout` for
    work to end, both in seconds.  `accepted` are verdicts that are good enough, `drain` is
    `none`, `slurm`, `kubernetes` or a program, `at_once` how many nodes are in flight (0: a whole
    phase), `untested` the reason for a release without a boot test.
    """

    timeout: float = 900
    drain_timeout: float = 43_200
    accepted: tuple[Verdict, ...] = ()
    drain: str = "none"
    at_once: int = 0
    untested: str = ""


@dataclass(frozen=True)
class JournalTime:
    """When a roll-out was written down: by the clock, and in seconds since the boot `boot` of this
    host, which nobody sets.  A clock that was set since then is noticed by the difference.
    """

    boot: str
    time: ZonedTime
    seconds: Seconds


@dataclass(frozen=True)
class Rollout:
    """A profile's way from the version `before`, which is stable, to `after`.

    `why` says why it stopped.  `window` is the maintenance window (imagebuilder.window) that it
    keeps to, as nightly runs have it; empty for one that a person runs.  `written` goes with the
    times of its nodes; None in journals of older versions, and before the first step.
    """

    profile: Name
    before: Name
    after: Name
    by: AnyText
    started: ZonedTime
    nodes: tuple[RolloutNode, ...]
    terms: RolloutTerms = RolloutTerms()
    status: RolloutStatus = RolloutStatus.RUNNING
    why: OneLine = ""
    window: str = ""
    written: JournalTime | None = None

    @property
    def release(self) -> ReleaseName:
        return ReleaseName(self.profile, self.after)

    @property
    def old(self) -> ReleaseName:
        return ReleaseName(self.profile, self.before)

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def settled(self) -> bool:
        """Whether nobody has to run it: it has ended, or is paused with no node in between."""
        paused = self.status is RolloutStatus.PAUSED
        return self.ended or (paused and not any(node.in_flight for node in self.nodes))

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "profile": self.profile,
            "from": self.before,
            "to": self.after,
            "status": self.status.value,
            "why": self.why,
            "by": self.by,
            "started": self.started,
            "window": self.window,
            "nodes": [
                {"node": n.name, "phase": n.phase, "stage": n.stage.value, "since": n.since,
                 "why": n.why}
                for n in self.nodes
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class LiveRollout:
    """A roll-out, and whether a process runs it now.

    `process` says in words which one does, or did last: it identifies an interruption.
    """

    rollout: Rollout
    runs: bool
    process: str = ""

    @property
    def runner(self) -> str:
        """Who runs it now; empty for nobody."""
        return self.process if self.runs else ""

    @property
    def interrupted(self) -> bool:
        """Whether its process ended, by a kill or a power cut, before its work did."""
        return not self.runs and not self.rollout.settled

    @property
    def word(self) -> str:
        return INTERRUPTED if self.interrupted else self.rollout.status.value

    @property
    def interruption(self) -> str:
        """Equal for two observations of the same interruption alone."""
        return f"{self.rollout.started} {self.process}"

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {**self.rollout.as_json(), "interrupted": self.interrupted}


@dataclass(frozen=True)
class Sight:
    """What was just seen of a node.

    `boot_id` and `release` (PROFILE@VERSION, from the root it runs) are empty when it could not be
    logged in to; `problem` then says why, and `booting` is the release that its initrd reported
    lately.  `work` is what still runs on it, empty when nothing does.  `changed` says how
    nodes.yaml differs from what the roll-out wrote.
    """

    boot_id: str = ""
    release: str = ""
    problem: str = ""
    booting: str = ""
    work: str = ""
    changed: str = ""
    verdict: Verdict = Verdict.UNKNOWN
    words: str = ""

    @property
    def answers(self) -> bool:
        return bool(self.boot_id)


ROLLOUT = JsonFile(
    Rollout,
    1,
    "run imagebuilder nodes list to see which nodes are pinned; remove the file and unpin them "
    "with imagebuilder nodes set NODE --unset version",
)
