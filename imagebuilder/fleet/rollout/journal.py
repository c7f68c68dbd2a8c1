# SPDX-License-Identifier: Apache-2.0
"""TREE/rollouts/PROFILE.json: the last roll-out of a profile, written before each step of it.

PROFILE.wish, beside it, is what a person asks of the process that runs it, and PROFILE.taken the
same while it is obeyed; PROFILE.reported is the interruption that receivers of notifications were
told of last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.files import filling, make_folder, move_away, read_text, write_file
from imagebuilder.fleet.rollout.machine import aborted, paused
from imagebuilder.fleet.rollout.types import ROLLOUT, LiveRollout, Rollout
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.nodes.references import find_version
from imagebuilder.plain import open_plain
from imagebuilder.publish.journal import find_person
from imagebuilder.tree import STABLE, Tree

PAUSE, ABORT = "pause", "abort"
LOOKS = 20
MOMENT = 0.1  # seconds; who checks whether a roll-out runs has its lock for much less
SPACE = (
    "remove old releases with imagebuilder gc --releases; imagebuilder rollout status shows how to "
    "continue"
)
REPLACE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def find_rollout(tree: Tree, profile: str) -> Rollout | None:
    """The last roll-out of a profile; None when there was none.  Raises InputError."""
    path = tree.rollout(profile)
    return ROLLOUT.load(path) if path.exists() else None


def find_rollouts(tree: Tree) -> list[Rollout]:
    """The last roll-out of each profile.  Raises InputError."""
    return [ROLLOUT.load(path) for path in sorted((tree.path / "rollouts").glob("[!.]*.json"))]


def find_live_rollouts(tree: Tree) -> list[LiveRollout]:
    """The last roll-out of each profile, and whether it runs.  Raises InputError."""
    return [find_live(tree, rollout) for rollout in find_rollouts(tree)]


def find_live(tree: Tree, rollout: Rollout) -> LiveRollout:
    """A roll-out as it is now, and whether it runs.  Raises InputError.

    A process may begin or end while we look, so we look until none does.
    """
    profile, process = rollout.profile, ""
    for _ in range(LOOKS):
        process = runner(tree, profile)
        runs = is_running(tree, profile)
        certain = runs or rollout.settled
        # Its process may have ended it after we read the journal and before we checked the lock.
        now = rollout if certain else find_rollout(tree, profile)
        if now is None:
            return LiveRollout(rollout, runs, process)
        begun = runner(tree, profile) != process or (not runs and is_running(tree, profile))
        if now == rollout and not begun:
            return LiveRollout(rollout, runs, process)
        rollout = now
    return LiveRollout(rollout, runs=True, process=process)  # one process after the other begins


def save_rollout(tree: Tree, rollout: Rollout) -> None:
    """Write it down, for good.  Raises OSError."""
    path = tree.rollout(rollout.profile)
    make_folder(path.parent)
    write_file(path, ROLLOUT.render(rollout).encode())


@contextmanager
def rolling_out(tree: Tree, profile: str) -> Iterator[None]:
    """Be the only one who rolls this profile out.

    Raises WorkError that names the other, FullError if the disk becomes full.
    """
    path = lock_of(tree, profile)

    def refuse() -> None:
        time.sleep(MOMENT)
        if not is_running(tree, profile):
            return  # somebody checked whether it runs
        raise WorkError(
            f"a roll-out of {profile} is in progress: {runner(tree, profile)}",
            hint=f"run imagebuilder rollout status {profile} to see it, or rollout pause {profile} "
            "to pause it",
        )

    with filling(tree.path, SPACE), file_lock(path, waiting=refuse):
        since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        descriptor = open_plain(runner_file(tree, profile), REPLACE)
        with os.fdopen(descriptor, "w") as file:  # a power cut is to leave it too
            file.write(f"{find_person(os.environ)}, process {os.getpid()}, since {since}\n")
            file.flush()
            os.fsync(file.fileno())
        yield


def lock_of(tree: Tree, profile: str) -> Path:
    return tree.lock(f"rollout-{profile}")


def runner_file(tree: Tree, profile: str) -> Path:
    """Who runs it, for everybody to read; the lock itself is closed to others."""
    return tree.lock(f"runner-{profile}")


def is_running(tree: Tree, profile: str) -> bool:
    return is_locked(lock_of(tree, profile))


def runner(tree: Tree, profile: str) -> str:
    """Who runs it, or did last, in words."""
    try:
        return read_text(runner_file(tree, profile)).strip() or "it has just begun"
    except FileNotFoundError:
        return "nobody"


def wish_file(tree: Tree, profile: str) -> Path:
    return tree.rollout(profile).with_suffix(".wish")


def taken_file(tree: Tree, profile: str) -> Path:
    """The wish that is being obeyed."""
    return tree.rollout(profile).with_suffix(".taken")


def forget_wishes(tree: Tree, profile: str) -> None:
    """Drop what was wished of an earlier process."""
    for path in (wish_file(tree, profile), taken_file(tree, profile)):
        path.unlink(missing_ok=True)


def is_reported(tree: Tree, live: LiveRollout) -> bool:
    """Whether a command told receivers of this interruption."""
    try:
        return read_text(report_file(tree, live.rollout.profile)).strip() == live.interruption
    except FileNotFoundError:
        return False


def note_reported(tree: Tree, live: LiveRollout) -> None:
    write_file(report_file(tree, live.rollout.profile), f"{live.interruption}\n".encode())


def report_file(tree: Tree, profile: str) -> Path:
    return tree.rollout(profile).with_suffix(".reported")


def make_wish(tree: Tree, profile: str, wish: str) -> None:
    with filling(tree.path, SPACE):
        write_file(wish_file(tree, profile), f"{wish}\n".encode())


def obey(tree: Tree, rollout: Rollout) -> Rollout:
    """The roll-out after what a person wished, which is written down and done with.

    A wish is moved away before it is read: one that comes after that is for the next time.  What a
    killed process moved away comes first.
    """
    rollout = obey_taken(tree, rollout)
    try:
        move_away(wish_file(tree, rollout.profile), taken_file(tree, rollout.profile))
    except FileNotFoundError:
        return rollout
    return obey_taken(tree, rollout)


def obey_taken(tree: Tree, rollout: Rollout) -> Rollout:
    """The roll-out after the wish that was moved away, if there is one."""
    path = taken_file(tree, rollout.profile)
    try:
        wish = read_text(path).strip()
    except FileNotFoundError:
        return rollout
    changed = rollout
    if wish == PAUSE:
        changed = paused(rollout)
    elif wish == ABORT:
        changed = aborted(rollout, find_version(tree, rollout.profile, STABLE))
    if changed != rollout:
        save_rollout(tree, changed)
    path.unlink(missing_ok=True)
    return changed
