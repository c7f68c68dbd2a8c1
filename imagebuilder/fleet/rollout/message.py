# SPDX-License-Identifier: Apache-2.0
"""The message about a roll-out that started, paused, stopped or ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from imagebuilder.digest import Json
from imagebuilder.fleet.rollout.show import reasons_of, render_rollout
from imagebuilder.fleet.rollout.types import Rollout, RolloutStage, RolloutStatus
from imagebuilder.notify.send import Notifier
from imagebuilder.notify.types import Message, Topic, one_line
from imagebuilder.ui import format_count

LISTED = 200  # nodes that failed
KINDS: Mapping[RolloutStatus, str] = {
    RolloutStatus.RUNNING: "rollout-started",
    RolloutStatus.PAUSED: "rollout-paused",
    RolloutStatus.STOPPED: "rollout-stopped",
    RolloutStatus.DONE: "rollout-finished",
    RolloutStatus.ABORTED: "rollout-finished",
}
WORDS = {RolloutStatus.RUNNING: "started", RolloutStatus.DONE: "finished"}
# Who is told of a roll-out that has come into another status.
TellRollout = Callable[[Rollout], None]


def tell_nobody(rollout: Rollout) -> None:
    """Where nobody is told."""


def telling(notifier: Notifier) -> TellRollout:
    """Have receivers told."""

    def tell(rollout: Rollout) -> None:
        if kind := KINDS.get(rollout.status):
            message = make_message(rollout, kind)
            notifier.send(lambda receiver: message if receiver.wants(kind) else None)

    return tell


def make_message(rollout: Rollout, kind: str) -> Message:
    word = WORDS.get(rollout.status, rollout.status.value)
    why = f": {rollout.why}" if rollout.why else ""
    reasons = [*reasons_of(rollout.nodes)]
    more = f" ({reasons[0]})" if len(reasons) == 1 else ""
    text = f"roll-out of {rollout.release} to {count_nodes(rollout)} {word}{why}{more}"
    details = render_rollout(rollout, "")
    return Message(Topic.ROLLOUT, (kind,), one_line(text), f"{details}\n", describe(rollout))


def count_nodes(rollout: Rollout) -> str:
    return format_count(len(rollout.nodes), "node")


def describe(rollout: Rollout) -> dict[str, Json]:
    """For programs: a stable contract.  Nodes are counted, those that failed are listed."""
    stages = Counter(node.stage for node in rollout.nodes)
    failed = [node for node in rollout.nodes if node.failed or node.stage is RolloutStage.LEFT]
    return {
        "profile": rollout.profile,
        "from": rollout.before,
        "to": rollout.after,
        "status": rollout.status.value,
        "why": one_line(rollout.why),
        "by": rollout.by,
        "started": rollout.started,
        "window": rollout.window,
        "counts": {stage.value: stages[stage] for stage in RolloutStage if stages[stage]},
        "failed": [
            {"node": node.name, "stage": node.stage.value, "why": one_line(node.why)}
            for node in failed[:LISTED]
        ],
        "omitted": max(0, len(failed) - LISTED),
    }
