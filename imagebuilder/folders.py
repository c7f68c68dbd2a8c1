# SPDX-License-Identifier: Apache-2.0
"""What folders contain, also those that other processes change meanwhile."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

MILLISECOND = 1_000_000  # in ns
MOUNTS = Path("/proc/self/mountinfo")
ESCAPED = re.compile(rb"\\([0-7]{3})")


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
    for here, folders, names in folders_below(top):
        yield from (Path(here, name) for name in (*folders, *names))


def folders_below(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder below `top`, itself first, with the names of folders and of others in it.

    As os.walk(), which calls itself for each level before Python 3.12: a program of an image may
    make thousands.  Names that the caller takes from the first list are not entered, nor are links.
    """
    todo = [os.fspath(top)]
    while todo:
        here = todo.pop()
        try:
            with os.scandir(here) as entries:
                found = list(entries)
        except OSError:
            continue
        folders = [entry.name for entry in found if leads_to_folder(entry)]
        entered = {entry.name for entry in found if entry.is_dir(follow_symlinks=False)}
        yield here, folders, sorted({entry.name for entry in found} - set(folders))
        todo.extend(f"{here.rstrip('/')}/{name}" for name in reversed(folders) if name in entered)


def leads_to_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link to one; no link that leads to itself is."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def folders_in(top: Path) -> list[str]:
    """The sorted names of the folders in a folder, without hidden ones; none if it is no folder."""
    try:
        return sorted(p.name for p in top.iterdir() if p.is_dir() and not p.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def drop_others(top: Path, needed: Collection[Path]) -> None:
    """Remove all but the `needed` files of a folder, and what killed writers left."""
    for path in top.glob("*"):
        if path not in needed:
            path.unlink()


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


def read_mounts(mountinfo: bytes | None = None) -> Iterator[tuple[str, str]]:
    """Where something is mounted, and the type of that file system (proc_pid_mountinfo(5)).

    Anybody may mount at a name that is no UTF-8: it is spelled as Path spells it.
    """
    for line in (MOUNTS.read_bytes() if mountinfo is None else mountinfo).splitlines():
        left, _, right = line.partition(b" - ")
        point = ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), left.split(b" ")[4])
        yield os.fsdecode(point), os.fsdecode(right.split(b" ")[0])
