# SPDX-License-Identifier: Apache-2.0
"""Start a roll-out, go on with one, pause or abort it: what people type, what nightly runs do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from imagebuilder.fleet.drain import choose_drainer
from imagebuilder.fleet.rollout.journal import (
    forget_wishes,
    is_running,
    make_wish,
    obey,
    rolling_out,
    runner,
    save_rollout,
)
from imagebuilder.fleet.rollout.machine import resumed
from imagebuilder.fleet.rollout.message import TellRollout, tell_nobody
from imagebuilder.fleet.rollout.run import RolloutRun
from imagebuilder.fleet.rollout.start import RolloutOrder, check_goes_on, check_wish, make_rollout
from imagebuilder.fleet.rollout.types import LiveRollout, Rollout, RolloutStatus
from imagebuilder.publish.find import find_profile
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui


def start_rollout(
    tree: Tree,
    order: RolloutOrder,
    env: Mapping[str, str],
    ui: Ui,
    *,
    window: str = "",
    wait: Callable[[float], None] = time.sleep,
    tell: TellRollout = tell_nobody,
) -> Rollout:
    """Make a roll-out, and run it until it has ended or is paused; it keeps to a `window`.

    Raises InputError, WorkError if one is in progress or the release may not become stable,
    HostError.
    """
    drainer = choose_drainer(order.terms.drain)
    profile = order.name.partition("@")[0]
    find_profile(tree, profile)
    with rolling_out(tree, profile):
        rollout = replace(make_rollout(tree, order, env, ui), window=window)
        forget_wishes(tree, profile)
        save_rollout(tree, rollout)
        return RolloutRun(tree, ui, drainer, env, wait=wait, tell=tell).go(rollout)


def resume_rollout(
    tree: Tree,
    profile: str,
    env: Mapping[str, str],
    ui: Ui,
    *,
    window: str = "",
    wait: Callable[[float], None] = time.sleep,
    tell: TellRollout = tell_nobody,
) -> Rollout:
    """Go on with a roll-out, from now on within a `window`, or whenever it is.

    Raises as start_rollout() does.
    """
    check_goes_on(tree, profile)
    with rolling_out(tree, profile):
        rollout = resumed(check_goes_on(tree, profile), datetime.now(UTC))
        rollout = replace(rollout, window=window)
        forget_wishes(tree, profile)
        save_rollout(tree, rollout)
        drainer = choose_drainer(rollout.terms.drain)
        return RolloutRun(tree, ui, drainer, env, wait=wait, tell=tell).go(rollout)


def send_wish(tree: Tree, profile: str, wish: str, ui: Ui) -> bool:
    """Ask the process that runs a roll-out to pause or abort it; False if none runs it.

    Raises InputError.
    """
    check_wish(tree, profile, wish)
    make_wish(tree, profile, wish)
    if not is_running(tree, profile):
        return False
    ui.note(f"asked {runner(tree, profile)}, who runs it, to {wish} it")
    return True


def obey_wish(
    tree: Tree,
    profile: str,
    wish: str,
    env: Mapping[str, str],
    ui: Ui,
    *,
    tell: TellRollout = tell_nobody,
) -> Rollout:
    """Do what was wished where no process runs it.  Raises as start_rollout() does."""
    with rolling_out(tree, profile):
        rollout = obey(tree, check_wish(tree, profile, wish))
        if rollout.status is RolloutStatus.PAUSED:
            ui.note(f"roll-out of {rollout.release}: paused")
            if not (live := LiveRollout(rollout, runs=False)).interrupted:
                tell(live)
            return rollout
        drainer = choose_drainer(rollout.terms.drain)
        return RolloutRun(tree, ui, drainer, env, tell=tell).go(rollout)
