# SPDX-License-Identifier: Apache-2.0
"""Throw-away directories of builds: made under a lock, swept when their owner is gone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.process import run
from imagebuilder.store.locks import held, is_held

OWNED = ".owned"
KEPT = ".kept"


@contextmanager
def workplace(state: Path, name: str) -> Iterator[Path]:
    """A fresh directory below `state`/work, gone at the end unless keep() was called on it.

    Its lock tells sweep() that somebody lives there; the kernel drops it with the process.
    """
    top = state / "work"
    with held(state / "locks" / "work"):
        sweep(top)
        place = top / name
        place.mkdir(parents=True)
        owned = held(place / OWNED)
        owned.__enter__()
    try:
        yield place
    finally:
        owned.__exit__(None, None, None)
        if not (place / KEPT).exists():
            remove_tree(place)


def new_id(profile: str) -> str:
    """A name for a build: profile, local time of day in UTC, process."""
    return f"{profile}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"


def keep(place: Path, trees: tuple[str, ...]) -> None:
    """Leave `place` for a person to look at, with the names that stacked are the failed tree.

    `gc` removes it.
    """
    (place / KEPT).write_text("\n".join(trees))


def sweep(top: Path, *, kept: bool = False) -> int:
    """Remove the places below `top` that nobody owns (with `kept`, those kept too); how many."""
    swept = 0
    for place in sorted(top.iterdir()) if top.is_dir() else []:
        if not is_held(place / OWNED) and (kept or not (place / KEPT).exists()):
            remove_tree(place)
            swept += 1
    return swept


def remove_tree(place: Path) -> None:
    """Remove a directory of ours; refuses while anything is mounted below it.

    `rm -rf` through a mounted /dev has destroyed hosts (void-mklive #364).  Raises WorkError.
    """
    below = f"{place.resolve()}/"
    rows = Path("/proc/self/mountinfo").read_text().splitlines()
    for row in rows:
        mounted = row.split(" ")[4].encode().decode("unicode_escape")
        if f"{mounted}/".startswith(below):
            raise WorkError(
                f"{mounted} is mounted inside a directory that is to be removed",
                where=os.fspath(place),
                hint=f"find out who mounted it, then umount {mounted}",
            )
    if place.is_dir():
        run(["rm", "-rf", "--one-file-system", "--", place])
    else:
        shutil.rmtree(place, ignore_errors=True)
