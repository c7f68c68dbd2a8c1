# SPDX-License-Identifier: Apache-2.0
"""TREE/rollouts/PROFILE.json: the last roll-out of a profile, written before each step of it.

PROFILE.wish, beside it, is what a person asks of the process that runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.files import make_folder, read_text, write_file
from imagebuilder.fleet.rollout.machine import aborted, paused
from imagebuilder.fleet.rollout.types import ROLLOUT, Rollout
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.publish.journal import find_person
from imagebuilder.tree import Tree

PAUSE, ABORT = "pause", "abort"


def find_rollout(tree: Tree, profile: str) -> Rollout | None:
    """The last roll-out of a profile; None when there was none.  Raises InputError."""
    path = tree.rollout(profile)
    return ROLLOUT.load(path) if path.exists() else None


def find_rollouts(tree: Tree) -> list[Rollout]:
    """The last roll-out of each profile.  Raises InputError."""
    return [ROLLOUT.load(path) for path in sorted((tree.path / "rollouts").glob("[!.]*.json"))]


def save_rollout(tree: Tree, rollout: Rollout) -> None:
    """Write it down, for good.  Raises OSError."""
    path = tree.rollout(rollout.profile)
    make_folder(path.parent)
    write_file(path, ROLLOUT.render(rollout).encode())


@contextmanager
def rolling_out(tree: Tree, profile: str) -> Iterator[None]:
    """Be the only one who rolls this profile out.  Raises WorkError that names the other."""
    path = lock_of(tree, profile)

    def refuse() -> None:
        raise WorkError(
            f"a roll-out of {profile} is in progress: {runner(tree, profile)}",
            hint=f"imagebuilder rollout status {profile} shows it, rollout pause {profile} pauses "
            "it",
        )

    with file_lock(path, waiting=refuse):
        since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        path.write_text(f"{find_person(os.environ)}, process {os.getpid()}, since {since}\n")
        yield


def lock_of(tree: Tree, profile: str) -> Path:
    return tree.lock(f"rollout-{profile}")


def is_running(tree: Tree, profile: str) -> bool:
    return is_locked(lock_of(tree, profile))


def runner(tree: Tree, profile: str) -> str:
    """Who runs it, in words."""
    return read_text(lock_of(tree, profile)).strip() or "it has just begun"


def wish_file(tree: Tree, profile: str) -> Path:
    return tree.rollout(profile).with_suffix(".wish")


def make_wish(tree: Tree, profile: str, wish: str) -> None:
    write_file(wish_file(tree, profile), f"{wish}\n".encode())


def obey(tree: Tree, rollout: Rollout) -> Rollout:
    """The roll-out after what a person wished, which is written down and done with."""
    path = wish_file(tree, rollout.profile)
    try:
        wish = read_text(path).strip()
    except FileNotFoundError:
        return rollout
    changed = {PAUSE: paused, ABORT: aborted}.get(wish, lambda same: same)(rollout)
    if changed != rollout:
        save_rollout(tree, changed)
    path.unlink(missing_ok=True)
    return changed
