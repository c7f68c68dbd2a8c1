# SPDX-License-Identifier: Apache-2.0
"""Rollout + what was seen -> what to do now.  Pure; each of it may be done twice without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imagebuilder.fleet.rollout.types import (
    FAILED,
    PowerCut,
    Rollout,
    RolloutStage,
    RolloutStatus,
    Sight,
)

AT_REST = (RolloutStage.WAITING, RolloutStage.DONE, RolloutStage.LEFT, RolloutStage.RETURNED)
UNPINNED = (RolloutStatus.DONE, RolloutStatus.ABORTING, RolloutStatus.ABORTED)


@dataclass(frozen=True)
class Due:
    """`reboot` names the boot that is to end: it is ended only if it still runs.  `cut` are silent
    nodes that need their power cut, `resume` those to let work onto again.
    """

    reboot: Mapping[str, str]
    cut: tuple[str, ...]
    resume: tuple[str, ...]


def find_due(rollout: Rollout, sights: Mapping[str, Sight]) -> Due:
    reboot: dict[str, str] = {}
    for node in rollout.nodes:
        sight = sights.get(node.name, Sight())
        if not sight.answers:
            continue
        same = sight.boot_id == node.boot_id
        wrong = sight.release != str(rollout.old)
        if (node.stage is RolloutStage.REBOOTING and same) or (
            node.stage is RolloutStage.RETURNING and wrong
        ):
            reboot[node.name] = sight.boot_id
    cut = tuple(
        node.name
        for node in rollout.nodes
        if node.stage is RolloutStage.RETURNING
        and node.cut is PowerCut.DUE
        and not sights.get(node.name, Sight()).answers
    )
    resume = tuple(n.name for n in rollout.nodes if n.drained and n.stage in AT_REST)
    return Due(reboot, cut, resume)


def wanted_pins(rollout: Rollout) -> dict[str, str]:
    """The version that each node is to be pinned to, empty for none; only of those ever touched."""
    return {node.name: pin(rollout, node.stage) for node in rollout.nodes if node.touched}


def pin(rollout: Rollout, stage: RolloutStage) -> str:
    if rollout.status in UNPINNED or stage in (RolloutStage.WAITING, RolloutStage.LEFT):
        return ""
    return rollout.before if stage in FAILED else rollout.after
