# SPDX-License-Identifier: Apache-2.0
"""Roll out what passed within a maintenance window; resume what the end of a window interrupted.

A roll-out that stopped needs a person: every run reports it, and no run tries its release again.  A
roll-out that a person runs, paused or aborted is left alone.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

from imagebuilder.errors import WorkError
from imagebuilder.fleet.rollout.command import resume_rollout, start_rollout
from imagebuilder.fleet.rollout.journal import find_rollout, is_running, runner
from imagebuilder.fleet.rollout.show import reasons_of
from imagebuilder.fleet.rollout.start import RolloutOrder, find_followers
from imagebuilder.fleet.rollout.types import Rollout, RolloutStage, RolloutStatus
from imagebuilder.nightly.context import Attempt, Nightly
from imagebuilder.nightly.profile import find_hold
from imagebuilder.nightly.types import Ending, NightlyRollout, NightlyStage
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.publish.channel.move import promote
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName
from imagebuilder.window import parse_window


def roll_out(attempt: Attempt, nightly: Nightly) -> None:
    """Roll out a profile that was built and tested.  Raises the error that ends it, of TROUBLES."""
    wanted = nightly.options.rollout
    assert wanted is not None
    last = find_rollout(nightly.tree, attempt.profile)
    if is_running(nightly.tree, attempt.profile):
        attempt.explain(f"a roll-out is in progress: {runner(nightly.tree, attempt.profile)}")
    elif last is not None and not last.ended:
        go_on(attempt, nightly, wanted, last)
    elif not attempt.known.failed:
        begin(attempt, nightly, wanted, last)


def go_on(attempt: Attempt, nightly: Nightly, wanted: NightlyRollout, last: Rollout) -> None:
    """Resume what an earlier run began."""
    if not last.window:
        attempt.warn(
            f"the roll-out of {last.release} by {last.by} is {last.status.value} and not finished; "
            f"run imagebuilder rollout resume {last.profile} to continue it"
        )
    elif is_time(attempt, wanted, last.release):
        with attempt.at(NightlyStage.ROLLOUT):
            ended = resume_rollout(
                nightly.tree, last.profile, os.environ, nightly.ui,
                window=wanted.window, wait=nightly.wait, tell=nightly.tell,
            )  # fmt: skip
            tell(attempt, ended)


def begin(attempt: Attempt, nightly: Nightly, wanted: NightlyRollout, last: Rollout | None) -> None:
    """Roll the candidate out, unless it is stable or a person has rolled it back."""
    tree, profile = nightly.tree, attempt.profile
    release = ReleaseName(profile, find_version(tree, profile, CANDIDATE))
    stable = find_version(tree, profile, STABLE)
    if not release.version or release.version == stable:
        return
    if last and last.after == release.version and last.status is not RolloutStatus.DONE:
        tell(attempt, last)
    elif hold := find_hold(tree, release):
        attempt.explain(hold)
    elif is_time(attempt, wanted, release):
        with attempt.at(NightlyStage.ROLLOUT):
            if not stable or not find_followers(load_nodes(tree), profile, stable, last):
                attempt.explain("promoting it at once: no node follows its stable yet")
                attempt.save()
                nightly.ui.note(promote(tree, str(release), nightly.ui).render())
                attempt.end(Ending.PROMOTED)
                return
            order = RolloutOrder(str(release), wanted.terms, wanted.canary, wanted.batch)
            ended = start_rollout(
                tree, order, os.environ, nightly.ui, window=wanted.window, wait=nightly.wait,
                tell=nightly.tell,
            )  # fmt: skip
            tell(attempt, ended)


def is_time(attempt: Attempt, wanted: NightlyRollout, release: ReleaseName) -> bool:
    """Whether the window is open; explains if it is not."""
    is_open = parse_window(wanted.window).contains(datetime.now(UTC))
    if not is_open:
        attempt.explain(f"{release} waits for the maintenance window, {wanted.window}")
    return is_open


def tell(attempt: Attempt, rollout: Rollout) -> None:
    """Report how a roll-out ended.  Raises WorkError if it stopped."""
    have = sum(node.stage is RolloutStage.DONE for node in rollout.nodes)
    what = f"the roll-out of {rollout.release} is {rollout.status.value}"
    if rollout.why:
        what += f": {rollout.why}"
    if rollout.status is RolloutStatus.STOPPED:
        hint = (
            f"run imagebuilder rollout resume {rollout.profile} to retry the failed nodes, or "
            f"rollout abort {rollout.profile} to roll the others back; nightly runs do not retry it"
        )
        if attempt.known.failed:
            attempt.warn(f"{what}; {hint}")
            return
        attempt.known = replace(attempt.known, stage=NightlyStage.ROLLOUT)
        raise WorkError("\n".join([what, *reasons_of(rollout.nodes)]), hint=hint)
    attempt.explain(f"{what}; {have} of {len(rollout.nodes)} nodes have it")
    if rollout.status is RolloutStatus.DONE and not attempt.known.failed:
        attempt.end(Ending.PROMOTED)
