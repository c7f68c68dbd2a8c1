# SPDX-License-Identifier: Apache-2.0
"""Rollout + what was seen -> Rollout: how a roll-out goes on.  Pure: no clock, no file, no node.

What has to be done follows from the result (find_due()), so it is written down before it is done,
and who is killed in between does it when the roll-out is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.types import (
    FAILED,
    IN_FLIGHT,
    PowerCut,
    Rollout,
    RolloutNode,
    RolloutStage,
    RolloutStatus,
    Sight,
)

ABORTED = "the roll-out was aborted"
WINDOW_OVER = "the maintenance window is over"
GOING_DOWN = 90.0  # seconds: systemd gives a service as long to stop
AT_REST = (RolloutStage.WAITING, RolloutStage.DONE, RolloutStage.LEFT, RolloutStage.RETURNED)
UNPINNED = (RolloutStatus.DONE, RolloutStatus.ABORTED)


def advance(rollout: Rollout, sights: Mapping[str, Sight], stable: str, now: datetime) -> Rollout:
    """The roll-out after its nodes were observed; `stable` is the version of that channel now."""
    if rollout.ended:
        return rollout
    moved = f"stable was moved to {stable or 'nothing'} meanwhile, by somebody else"
    kept = stable in (rollout.before, rollout.after)
    if rollout.status is RolloutStatus.PROMOTING:
        return rollout if kept else stop(rollout, moved, now)
    if rollout.status is RolloutStatus.ABORTING:
        return go_back(rollout, sights, now)
    nodes = tuple(
        step(rollout, node, sights[node.name], now) if node.name in sights else node
        for node in rollout.nodes
    )
    rollout = replace(rollout, nodes=nodes)
    if failed := sum(node.failed for node in nodes):
        return stop(rollout, f"{failed} of {len(nodes)} nodes failed", now)
    if not kept:
        return stop(rollout, moved, now)
    canaries = {node.stage for node in nodes if node.phase == 0}
    if canaries == {RolloutStage.LEFT}:
        return stop(rollout, "no canary could be updated", now)
    return begin(rollout, sights, now)


def stop(rollout: Rollout, why: str, now: datetime) -> Rollout:
    """Begin no further node, and let go of those that were not rebooted; the others end first."""
    rollout = replace(rollout, why=why, nodes=tuple(let_go(node, now) for node in rollout.nodes))
    return rollout if in_flight(rollout) else replace(rollout, status=RolloutStatus.STOPPED)


def let_go(node: RolloutNode, now: datetime) -> RolloutNode:
    """A node that was drained and not rebooted is as if it had not been touched."""
    if node.stage is RolloutStage.DRAINING and not node.goes_back:
        return enter(node, RolloutStage.WAITING, now)
    return node


def go_back(rollout: Rollout, sights: Mapping[str, Sight], now: datetime) -> Rollout:
    """The roll-out while it is aborted: a step of each node that was not turned back just now."""
    turned = turn_back(rollout, sights, now)
    nodes = tuple(
        step(rollout, node, sights[node.name], now)
        if after == node and node.name in sights
        else after
        for node, after in zip(rollout.nodes, turned.nodes, strict=True)
    )
    rollout = replace(rollout, nodes=nodes)
    if in_flight(rollout) or any(node.stage is RolloutStage.DONE for node in nodes):
        return rollout
    return replace(rollout, status=RolloutStatus.ABORTED)


def turn_back(rollout: Rollout, sights: Mapping[str, Sight], now: datetime) -> Rollout:
    """Every node that was rebooted, or may have been, goes back: those that have work on them
    again are drained before, and no more at a time than may be in flight.
    """
    nodes = tuple(
        fail(node, ABORTED, sights.get(node.name, Sight()), now, cut=False)
        if node.stage in (RolloutStage.REBOOTING, RolloutStage.CHECKING)
        else let_go(node, now)
        for node in rollout.nodes
    )
    rollout = replace(rollout, nodes=nodes)
    turned = at_most(rollout, [node.name for node in nodes if node.stage is RolloutStage.DONE])

    def back(node: RolloutNode) -> RolloutNode:
        sight = sights.get(node.name, Sight())
        if node.name not in turned:
            return node
        if sight.changed:
            return enter(node, RolloutStage.LEFT, now, why=sight.changed)
        if rollout.terms.drain == "none":
            return fail(node, ABORTED, sight, now, cut=False)
        return enter(replace(node, drained=True), RolloutStage.DRAINING, now, why=ABORTED)

    return replace(rollout, nodes=tuple(map(back, nodes)))


def begin(rollout: Rollout, sights: Mapping[str, Sight], now: datetime) -> Rollout:
    """Begin the next nodes; none is left: the release becomes stable."""
    if rollout.status is RolloutStatus.PAUSED:
        return rollout
    names = startable(rollout)
    nodes = tuple(
        start(rollout, node, sights[node.name], now)
        if node.name in names and node.name in sights
        else node
        for node in rollout.nodes
    )
    rollout = replace(rollout, nodes=nodes)
    if in_flight(rollout) or startable(rollout):
        return rollout
    return replace(rollout, status=RolloutStatus.PROMOTING)


def startable(rollout: Rollout) -> list[str]:
    """The nodes that may be begun now: of the first phase that is not over, as many as may be."""
    if rollout.status is not RolloutStatus.RUNNING or any(n.failed for n in rollout.nodes):
        return []
    waiting = [node for node in rollout.nodes if node.stage is RolloutStage.WAITING]
    phase = min((node.phase for node in waiting), default=0)
    if any(node.in_flight and node.phase < phase for node in rollout.nodes):
        return []
    return at_most(rollout, [node.name for node in waiting if node.phase == phase])


def at_most(rollout: Rollout, names: list[str]) -> list[str]:
    """As many of these nodes as may be in flight beside those that are."""
    most = rollout.terms.at_once
    return names[: max(0, most - len(in_flight(rollout)))] if most else names


def start(rollout: Rollout, node: RolloutNode, sight: Sight, now: datetime) -> RolloutNode:
    if sight.changed:
        return enter(node, RolloutStage.LEFT, now, why=sight.changed)
    if not sight.answers:
        return enter(node, RolloutStage.LEFT, now, why=f"was not updated: {sight.problem}")
    drained = rollout.terms.drain != "none"
    began = replace(node, boot_id=sight.boot_id, drained=drained, touched=True, why="")
    return enter(began, RolloutStage.DRAINING, now)


def step(rollout: Rollout, node: RolloutNode, sight: Sight, now: datetime) -> RolloutNode:
    """One node after it was observed."""
    steps: dict[RolloutStage, Callable[[Rollout, RolloutNode, Sight, datetime], RolloutNode]] = {
        RolloutStage.DRAINING: drain,
        RolloutStage.REBOOTING: reboot,
        RolloutStage.CHECKING: check,
        RolloutStage.RETURNING: bring_back,
    }
    if node.stage not in steps:
        return node
    if sight.changed and node.stage is not RolloutStage.RETURNING:
        return enter(node, RolloutStage.LEFT, now, why=sight.changed)
    return steps[node.stage](rollout, node, sight, now)


def drain(rollout: Rollout, node: RolloutNode, sight: Sight, now: datetime) -> RolloutNode:
    """Wait until nothing runs on it; it is rebooted unless it has the release already."""
    terms = rollout.terms
    # Where nothing is drained, all that it can wait for is that the node answers.
    patience = terms.timeout if terms.drain == "none" else terms.drain_timeout
    if is_late(node, patience, now):
        what = f"could not be drained in time: {sight.work or sight.problem}"
        if terms.drain == "none":
            what = f"no longer answered before its reboot: {sight.problem}"
        return enter(node, RolloutStage.LEFT, now, why=what)
    if node.goes_back:
        return node if sight.work else fail(node, ABORTED, sight, now, cut=False)
    if sight.work or not sight.answers:
        return node
    stage = has_it(rollout, sight) or RolloutStage.REBOOTING
    return enter(node, stage, now, boot_id=sight.boot_id)


def has_it(rollout: Rollout, sight: Sight) -> RolloutStage | None:
    return RolloutStage.CHECKING if sight.release == str(rollout.release) else None


def reboot(rollout: Rollout, node: RolloutNode, sight: Sight, now: datetime) -> RolloutNode:
    """Wait until another boot answers, which must run the release."""
    late = is_late(node, rollout.terms.timeout, now)
    if sight.answers and sight.boot_id != node.boot_id:
        if has_it(rollout, sight):
            return enter(node, RolloutStage.CHECKING, now, boot_id=sight.boot_id)
        what = f"booted {sight.release or 'something unknown'} instead"
        fell_back = " (the boot server fell back)" if sight.release == str(rollout.old) else ""
        return fail(node, f"{what}{fell_back}", sight, now)
    if not late:
        return node
    if sight.answers:
        return fail(node, f"did not reboot: {sight.problem or 'no reason known'}", sight, now)
    return fail(node, f"did not come back: {sight.problem}", sight, now)


def check(rollout: Rollout, node: RolloutNode, sight: Sight, now: datetime) -> RolloutNode:
    """Wait for its verdict on itself."""
    if sight.answers and sight.boot_id != node.boot_id:
        what = f"rebooted by itself while it was checked, into {sight.release or 'nothing known'}"
        return fail(node, what, sight, now)
    if sight.answers and (sight.verdict is Verdict.OK or sight.verdict in rollout.terms.accepted):
        return enter(node, RolloutStage.DONE, now)
    if sight.answers and sight.verdict is not Verdict.UNKNOWN:
        return fail(node, f"health: {sight.verdict.value}: {sight.words}", sight, now)
    if not is_late(node, rollout.terms.timeout, now):
        return node
    if sight.answers:
        return fail(node, f"health: unknown: {sight.words}", sight, now)
    return fail(node, f"answered once and no longer: {sight.problem}", sight, now)


def bring_back(rollout: Rollout, node: RolloutNode, sight: Sight, now: datetime) -> RolloutNode:
    """Wait until it runs the old release; its power is cut once if it stays silent.

    One that is booting that release gets twice the time, and is not interrupted.
    """
    if sight.answers and sight.release == str(rollout.old):
        if sight.boot_id == node.boot_id and not is_late(node, GOING_DOWN, now):
            return node  # it may have been told to reboot, and go down any moment
        good = (Verdict.OK, Verdict.UNKNOWN, *rollout.terms.accepted)
        if sight.verdict in good:
            return enter(node, RolloutStage.RETURNED, now)
        more = f"; with {rollout.before} too: {sight.verdict.value}: {sight.words}"
        if node.drained:
            more += "; it stays drained"
        sick = replace(node, drained=False)
        return enter(sick, RolloutStage.RETURNED, now, why=node.why + more)
    patience = 1 + (sight.booting == str(rollout.old))
    if not is_late(node, patience * rollout.terms.timeout, now):
        return node
    if not sight.answers and node.powered and node.cut is PowerCut.NONE:
        return enter(replace(node, cut=PowerCut.DUE), RolloutStage.RETURNING, now)
    what = f"runs {sight.release}" if sight.answers else sight.problem
    return enter(node, RolloutStage.LOST, now, why=f"{node.why}; could not be brought back: {what}")


def fail(
    node: RolloutNode, why: str, sight: Sight, now: datetime, *, cut: bool = True
) -> RolloutNode:
    """It goes back to the old release; its power is cut at once if it is silent."""
    due = cut and node.powered and not sight.answers
    failed = replace(node, boot_id=sight.boot_id, cut=PowerCut.DUE if due else PowerCut.NONE)
    return enter(failed, RolloutStage.RETURNING, now, why=why)


def enter(
    node: RolloutNode, stage: RolloutStage, now: datetime, *, why: str = "", boot_id: str = ""
) -> RolloutNode:
    """The node at the beginning of a stage; what is not given stays."""
    return replace(
        node,
        stage=stage,
        since=now.isoformat(),
        why=why or node.why,
        boot_id=boot_id or node.boot_id,
    )


def in_flight(rollout: Rollout) -> list[str]:
    return [node.name for node in rollout.nodes if node.in_flight]


def is_late(node: RolloutNode, seconds: float, now: datetime) -> bool:
    """Whether its stage has been taking longer than that; a clock set back makes it wait.

    So does a file that does not say since when; a person ends that.
    """
    return bool(node.since) and (now - datetime.fromisoformat(node.since)).total_seconds() > seconds


def shifted(rollout: Rollout, by: timedelta) -> Rollout:
    """The roll-out after the clock was set: what nodes wait for took no longer by that."""

    def shift(node: RolloutNode) -> RolloutNode:
        try:
            since = datetime.fromisoformat(node.since) + by
        except (ValueError, OverflowError):
            return node
        return replace(node, since=since.isoformat())

    return replace(rollout, nodes=tuple(shift(n) if n.in_flight else n for n in rollout.nodes))


def restart_stages(rollout: Rollout, now: datetime) -> Rollout:
    """The roll-out in which every node has the whole time of its stage again."""
    return replace(
        rollout, nodes=tuple(enter(n, n.stage, now) if n.in_flight else n for n in rollout.nodes)
    )


def watched(rollout: Rollout) -> list[str]:
    """The nodes that advance() wants to know about."""
    if rollout.status is RolloutStatus.ABORTING:
        active = (*IN_FLIGHT, RolloutStage.DONE)
        return [node.name for node in rollout.nodes if node.stage in active]
    return [*in_flight(rollout), *startable(rollout)]


def resumed(rollout: Rollout, now: datetime) -> Rollout:
    """The roll-out when a person lets it go on: what failed or was left alone is tried again."""
    if rollout.status is RolloutStatus.STOPPED:
        retried = (RolloutStage.RETURNED, RolloutStage.LOST, RolloutStage.LEFT)
        nodes = tuple(
            enter(replace(node, why="", cut=PowerCut.NONE), RolloutStage.WAITING, now)
            if node.stage in retried
            else node
            for node in rollout.nodes
        )
        return replace(rollout, status=RolloutStatus.RUNNING, why="", nodes=nodes)
    if rollout.status is RolloutStatus.PAUSED:
        return replace(rollout, status=RolloutStatus.RUNNING, why="")
    return rollout


def paused(rollout: Rollout) -> Rollout:
    """The roll-out when a person pauses it: no window lets it go on."""
    if rollout.status not in (RolloutStatus.RUNNING, RolloutStatus.PAUSED):
        return rollout
    return replace(rollout, status=RolloutStatus.PAUSED, why="", window="")


def out_of_window(rollout: Rollout, now: datetime) -> Rollout:
    """The roll-out when its window is over: no node is begun, and those that still work are left.

    One that has begun every node ends.
    """
    if rollout.status is not RolloutStatus.RUNNING or any(n.failed for n in rollout.nodes):
        return rollout
    nodes = tuple(let_go(node, now) for node in rollout.nodes)
    if not any(node.stage is RolloutStage.WAITING for node in nodes):
        return rollout
    return replace(rollout, status=RolloutStatus.PAUSED, why=WINDOW_OVER, nodes=nodes)


def aborted(rollout: Rollout, stable: str) -> Rollout:
    """The roll-out when a person gives it up; one whose release is `stable` is over."""
    if rollout.status in (RolloutStatus.DONE, RolloutStatus.ABORTED):
        return rollout
    if rollout.status is RolloutStatus.PROMOTING and stable == rollout.after:
        return rollout
    return replace(rollout, status=RolloutStatus.ABORTING, why=ABORTED)


@dataclass(frozen=True)
class Due:
    """`reboot` names the boot that is to end: it is ended only if it still runs.  `cut` are silent
    nodes that need their power cut, `resume` those to let work onto again.
    """

    reboot: Mapping[str, str]
    cut: tuple[str, ...]
    resume: tuple[str, ...]


def find_due(rollout: Rollout, sights: Mapping[str, Sight]) -> Due:
    """What to do now; each of it may be done twice without harm."""
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
