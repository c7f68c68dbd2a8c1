# SPDX-License-Identifier: Apache-2.0
"""What folders contain, also those that other processes change meanwhile."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

MILLISECOND = 1_000_000  # in ns


def entries_below(top: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder by name, each folder first, no link followed.  Raises OSError."""
    todo: list[os.DirEntry[str]] = []
    folder = os.fspath(top)
    while True:
        if folder:
            with os.scandir(folder) as entries:
                todo += sorted(entries, key=lambda entry: entry.name, reverse=True)
        if not todo:
            return
        yield (entry := todo.pop())
        folder = entry.path if entry.is_dir(follow_symlinks=False) else ""


def paths_below(top: Path) -> Iterator[Path]:
    """Everything below a folder that another process may change: what goes meanwhile is left out.

    No link is followed.  Path.rglob() raises for a folder that goes, before Python 3.13.
    """
    for here, folders, names in os.walk(top):
        yield from (Path(here, name) for name in (*folders, *names))


def matching(top: Path, pattern: str) -> Iterator[Path]:
    """What matches below a folder that another process may change, as Path.glob() finds it.

    What goes meanwhile is left out, for which Path.glob() raises before Python 3.13.
    """
    found = glob.iglob(pattern, root_dir=top, include_hidden=True)  # noqa: PTH207
    return (top / name for name in found)


def date_last(path: Path, others: Iterable[Path]) -> None:
    """Make `path`, which was made after `others`, the newest of them by its time (mtime).

    The clock may have been wrong: others that are newer get an earlier time, and stay in order.
    The time of `path` does not change.  Others that disappear are skipped.
    """
    times: list[tuple[int, Path]] = []
    for other in others:
        with contextlib.suppress(OSError):
            if other != path:
                times.append((other.stat().st_mtime_ns, other))
    limit = path.stat().st_mtime_ns
    for time, other in sorted(times, reverse=True):
        limit = min(time, limit - MILLISECOND)
        if time != limit:
            with contextlib.suppress(OSError):
                os.utime(other, ns=(limit, limit))
