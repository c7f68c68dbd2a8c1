# SPDX-License-Identifier: Apache-2.0
"""The message about a roll-out that started, paused, stopped, ended or was interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.fleet.rollout.journal import find_live_rollouts, is_reported, note_reported
from imagebuilder.fleet.rollout.show import find_next, reasons_of, render_rollout
from imagebuilder.fleet.rollout.types import (
    INTERRUPTED,
    LiveRollout,
    Rollout,
    RolloutStage,
    RolloutStatus,
)
from imagebuilder.notify.send import Notifier
from imagebuilder.notify.types import Message, Topic, one_line
from imagebuilder.tree import Tree
from imagebuilder.ui import format_count

LISTED = 200  # nodes that failed
KINDS: Mapping[RolloutStatus, str] = {
    RolloutStatus.RUNNING: "rollout-started",
    RolloutStatus.PAUSED: "rollout-paused",
    RolloutStatus.STOPPED: "rollout-stopped",
    RolloutStatus.DONE: "rollout-finished",
    RolloutStatus.ABORTED: "rollout-finished",
}
KIND_INTERRUPTED = "rollout-interrupted"
WORDS = {RolloutStatus.RUNNING: "started", RolloutStatus.DONE: "finished"}
# Tells of a roll-out that has come into another status or was interrupted; whether anybody is told.
TellRollout = Callable[[LiveRollout], bool]


def tell_nobody(live: LiveRollout) -> bool:
    """Where nobody is told."""
    del live
    return False


def telling(notifier: Notifier) -> TellRollout:
    """Have receivers told."""

    def tell(live: LiveRollout) -> bool:
        kind = KIND_INTERRUPTED if live.interrupted else KINDS.get(live.rollout.status)
        if not kind:
            return False
        message = make_message(live, kind)
        return notifier.send(lambda receiver: message if receiver.wants(kind) else None)

    return tell


def report_interruption(tree: Tree, live: LiveRollout, tell: TellRollout) -> None:
    """Have receivers told of an interruption, and note it, so that nobody tells them again."""
    if live.interrupted and tell(live):
        note_reported(tree, live)


def report_interruptions(tree: Tree, tell: TellRollout, reported: Collection[str]) -> None:
    """The same for each one that no command has reported, nor who noted those in `reported`."""
    try:
        found = find_live_rollouts(tree)
    except InputError:  # a damaged file, which `rollout status` shows, is no reason to fail
        return
    for live in found:
        if live.interruption not in reported and not is_reported(tree, live):
            report_interruption(tree, live, tell)


def make_message(live: LiveRollout, kind: str) -> Message:
    rollout = live.rollout
    if live.interrupted:
        counts = ", ".join(f"{count} {stage}" for stage, count in count_stages(rollout).items())
        words = f"{INTERRUPTED}: {counts}; {find_next(live)}"
    else:
        reasons = [*reasons_of(rollout.nodes)]
        why = f": {rollout.why}" if rollout.why else ""
        more = f" ({reasons[0]})" if len(reasons) == 1 else ""
        words = f"{WORDS.get(rollout.status, rollout.status.value)}{why}{more}"
    text = f"roll-out of {rollout.release} to {format_count(len(rollout.nodes), 'node')} {words}"
    details = f"{render_rollout(live)}\n"
    return Message(Topic.ROLLOUT, (kind,), one_line(text), details, describe(live))


def count_stages(rollout: Rollout) -> dict[str, int]:
    stages = Counter(node.stage for node in rollout.nodes)
    return {stage.value: stages[stage] for stage in RolloutStage if stages[stage]}


def describe(live: LiveRollout) -> dict[str, Json]:
    """For programs: a stable contract.  Nodes are counted, those that failed are listed."""
    rollout = live.rollout
    failed = [node for node in rollout.nodes if node.failed or node.stage is RolloutStage.LEFT]
    return {
        "profile": rollout.profile,
        "from": rollout.before,
        "to": rollout.after,
        "status": rollout.status.value,
        "interrupted": live.interrupted,
        "why": one_line(rollout.why),
        "by": rollout.by,
        "started": rollout.started,
        "window": rollout.window,
        "counts": {**count_stages(rollout)},
        "failed": [
            {"node": node.name, "stage": node.stage.value, "why": one_line(node.why)}
            for node in failed[:LISTED]
        ],
        "omitted": max(0, len(failed) - LISTED),
    }
