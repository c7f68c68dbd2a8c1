# SPDX-License-Identifier: Apache-2.0
"""A roll-out on one screen: how far it is, and what failed where and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imagebuilder.fleet.rollout.types import Rollout, RolloutNode, RolloutStage, RolloutStatus
from imagebuilder.fleet.select import fold

PHASES = ("canary", "batch", "all others")
LINES = 20  # of reasons; the others are in --json
NEXT = {
    RolloutStatus.RUNNING: "it was interrupted: imagebuilder rollout resume {profile}",
    RolloutStatus.PROMOTING: "it was interrupted: imagebuilder rollout resume {profile}",
    RolloutStatus.ABORTING: "it was interrupted: imagebuilder rollout resume {profile}",
    RolloutStatus.PAUSED: "imagebuilder rollout resume {profile} goes on",
    RolloutStatus.STOPPED: "imagebuilder rollout resume {profile} tries the failed nodes again, "
    "rollout abort {profile} takes the others back too, and rollout {profile}@VERSION begins with "
    "another release",
}


def render_rollout(rollout: Rollout, runner: str) -> str:
    """What a person wants to know; `runner` is who runs it now, empty for nobody."""
    lines = [
        f"{rollout.profile}: {rollout.before} -> {rollout.after}",
        f"{rollout.status.value}{f': {rollout.why}' if rollout.why else ''}",
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
    if not runner and (following := NEXT.get(rollout.status)):
        lines += ["", following.format(profile=rollout.profile)]
    return "\n".join(lines)


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
