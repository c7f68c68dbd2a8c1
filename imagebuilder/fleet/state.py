# SPDX-License-Identifier: Apache-2.0
"""What is known of a node: evidence with its source and age, and one derivation of its state.

Nothing is believed for longer than it was observed: a state is derived from evidence every time it
is asked for.  Silence is a state of its own, and the cause of nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from imagebuilder.digest import Json
from imagebuilder.nodes.evidence.seen import Seen
from imagebuilder.ui import format_age

# Longer than any boot takes: a report of a stage that is older says where the node stopped.
BOOTING = timedelta(minutes=15)
AHEAD = timedelta(days=1)  # a report that is so far in the future says nothing of the present
LAST_STAGE = "switch-root"


class Condition(StrEnum):
    """How a node is."""

    READY = "ready"  # its ssh server answers
    BOOTING = "booting"  # it reported a stage just now
    FAILED = "failed"  # it reported that its boot failed
    SILENT = "silent"  # it was there once and does not answer
    UNKNOWN = "unknown"  # nothing was ever seen of it


@dataclass(frozen=True)
class Observation:
    """One piece of evidence: where it is from, when it was made, and what it says."""

    source: str
    at: datetime
    what: str

    def as_json(self) -> dict[str, Json]:
        return {"source": self.source, "at": self.at.isoformat(), "what": self.what}


@dataclass(frozen=True)
class SshEvidence:
    """What is known of a node's ssh server: its answer when it was asked, which was at `probed`
    (None: never), and since when the boot server knows that it answered in the last boot.
    """

    answer: Observation | None = None
    probed: datetime | None = None
    ready_since: datetime | None = None

    def answered_since(self, report: Observation | None, now: datetime) -> Observation | None:
        """The answer, unless the node has reported a boot since.

        An answer from the future, by a clock that was set back, is none.
        """
        if self.answer and not is_between(self.answer.at, report, now):
            return self.answer
        if self.probed and self.ready_since and self.probed < self.ready_since <= now:
            return Observation("ssh", self.ready_since, "answered to ssh after its boot")
        return None

    def refused_since(self, report: Observation | None, now: datetime) -> bool:
        """Whether it was asked after that report, and did not answer."""
        probed = self.probed is not None and not is_between(self.probed, report, now)
        return probed and self.answer is None


def is_between(then: datetime, report: Observation | None, now: datetime) -> bool:
    """Whether a report came after `then`; one from the future, by a clock that was set back, is
    older than anything.
    """
    return report is not None and then < report.at <= now


@dataclass(frozen=True)
class NodeState:
    """How a node is, in a word and in words, and the evidence for it, the newest first.

    `release` is the one it booted last (`PROFILE@VERSION`), `next` the one it would boot now; both
    may be empty.  `fell_back` is whether that is another than nodes.yaml wants.
    """

    node: str
    condition: Condition
    words: str
    release: str
    next: str
    evidence: tuple[Observation, ...]
    fell_back: bool = False

    @property
    def ready(self) -> bool:
        return self.condition is Condition.READY

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "node": self.node,
            "condition": self.condition.value,
            "words": self.words,
            "release": self.release,
            "next": self.next,
            "evidence": [each.as_json() for each in self.evidence],
        }


def derive_state(
    node: str, seen: Seen | None, ssh: SshEvidence, next_release: str, now: datetime
) -> NodeState:
    """The state of a node from its last report and its ssh server."""
    report = report_of(seen)
    probe = ssh.answered_since(report, now)
    evidence = sorted(
        (each for each in (probe, report) if each), key=lambda each: each.at, reverse=True
    )
    condition, words = judge(seen, probe, report, ssh, now)
    release = str(seen.release) if seen else ""
    return NodeState(node, condition, words, release, next_release, tuple(evidence))


def judge(
    seen: Seen | None,
    probe: Observation | None,
    report: Observation | None,
    ssh: SshEvidence,
    now: datetime,
) -> tuple[Condition, str]:
    """The condition, and why."""
    if probe:
        return Condition.READY, probe.what
    refused = ssh.refused_since(report, now)
    no_answer = "does not answer to ssh" if refused else "its ssh server was not asked"
    if seen is None or report is None:
        return Condition.UNKNOWN, f"never reported a boot to this tree, and {no_answer}"
    age = format_age(now - report.at)
    if seen.stage == "failed" or seen.stage.startswith("failed"):
        return Condition.FAILED, f"its boot failed {age} ago"
    if report.at - now > AHEAD:
        when = f"is {format_ahead(report.at - now)}"
        return Condition.SILENT, f"{no_answer}; last sign, stage {seen.stage}, {when}"
    if now - report.at >= BOOTING:
        return Condition.SILENT, f"{no_answer}; last sign {age} ago, stage {seen.stage}"
    if refused and ssh.ready_since and ssh.ready_since >= report.at:
        return Condition.SILENT, f"{no_answer} any more; booted {age} ago"
    if seen.stage != LAST_STAGE:
        return Condition.BOOTING, f"reached stage {seen.stage} {age} ago"
    yet = " yet" if refused else ""
    return Condition.BOOTING, f"left the initrd {age} ago, and {no_answer}{yet}"


def format_ahead(by: timedelta) -> str:
    """That a time is in the future, and why."""
    return f"dated {format_age(by)} in the future: this host's clock was set back"


def report_of(seen: Seen | None) -> Observation | None:
    """The last report of a node as evidence."""
    if seen is None:
        return None
    at = datetime.fromisoformat(seen.last)
    return Observation("report", at, f"{seen.release}, stage {seen.stage}")


def summarise(states: Sequence[NodeState]) -> dict[Condition, int]:
    """How many nodes are in each condition, worst last."""
    return {c: n for c in Condition if (n := sum(state.condition is c for state in states))}
