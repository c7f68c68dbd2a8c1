# SPDX-License-Identifier: Apache-2.0
"""A roll-out on one screen: how far it is, and what failed where and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imagebuilder.fleet.rollout.types import (
    INTERRUPTED,
    LiveRollout,
    RolloutNode,
    RolloutStage,
    RolloutStatus,
)
from imagebuilder.fleet.select import fold

PHASES = ("canary", "batch", "all others")
LINES = 20  # of reasons; the others are in --json
CONTINUE = "run imagebuilder rollout resume {profile} to continue it"
TAKE_BACK = f"{CONTINUE}, or rollout abort {{profile}} to take its nodes back"
NEXT = {
    RolloutStatus.RUNNING: TAKE_BACK,
    RolloutStatus.PAUSED: TAKE_BACK,
    RolloutStatus.PROMOTING: CONTINUE,
    RolloutStatus.ABORTING: CONTINUE,
    RolloutStatus.STOPPED: "run imagebuilder rollout resume {profile} to try the failed nodes "
    "again, rollout abort {profile} to take the others back too, or rollout {profile}@VERSION to "
    "begin with another release",
}


def find_next(live: LiveRollout) -> str:
    """What a person can do about it; empty while it goes on, and for one that is over."""
    goes_on = live.runs and not live.rollout.settled
    words = "" if goes_on else NEXT.get(live.rollout.status, "")
    return words.format(profile=live.rollout.profile)


def render_rollout(live: LiveRollout) -> str:
    """What a person wants to know."""
    rollout, runner = live.rollout, live.runner
    lines = [
        f"{rollout.profile}: {rollout.before} -> {rollout.after}",
        f"{describe_status(live)}{f': {rollout.why}' if rollout.why else ''}",
        f"started by {rollout.by} at {rollout.started}"
        + (f", for nightly runs within {rollout.window}" if rollout.window else "")
        + (f"; run by {runner}" if runner else ""),
        "",
    ]
    for phase, title in enumerate(PHASES):
        nodes = [node for node in rollout.nodes if node.phase == phase]
        lines += [f"{title:<12}{stages}" for stages in stages_of(nodes)]
    reasons = [*reasons_of(rollout.nodes)]
    if reasons:
        lines += ["", *reasons[:LINES]]
    if len(reasons) > LINES:
        lines.append(f"and {len(reasons) - LINES} more: --json shows all")
    if rollout.status is RolloutStatus.STOPPED:
        lines += ["", f"stable of {rollout.profile} is as before: {rollout.before}"]
    if following := find_next(live):
        lines += ["", following]
    return "\n".join(lines)


def describe_status(live: LiveRollout) -> str:
    """Its status in words: `running`, `interrupted while promoting`."""
    status = live.rollout.status.value
    return f"{INTERRUPTED} while {status}" if live.interrupted else status


def stages_of(nodes: Sequence[RolloutNode]) -> Iterator[str]:
    """`12 done: node[1-12]`, in the order of the stages."""
    for stage in RolloutStage:
        if names := [node.name for node in nodes if node.stage is stage]:
            yield f"{len(names):>4} {stage.value}: {fold(names)}"


def reasons_of(nodes: Sequence[RolloutNode]) -> Iterator[str]:
    """Why nodes failed or were left alone, those with the same reason together."""
    found: dict[tuple[RolloutStage, str], list[str]] = {}
    for node in nodes:
        if node.why and (node.failed or node.stage is RolloutStage.LEFT):
            found.setdefault((node.stage, node.why), []).append(node.name)
    for (stage, why), names in found.items():
        yield f"{fold(names)}: {why} ({stage.value})"
