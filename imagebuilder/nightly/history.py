# SPDX-License-Identifier: Apache-2.0
"""The history of nightly runs, FOLDER/nights/ID.json, and of each profile over time.

An id begins with the time, so ids sort by time.  A clock that jumped may give a run an id in the
future: once another run was saved, runs with later ids than that one count as the oldest.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from imagebuilder import __version__
from imagebuilder.errors import Fault, InputError
from imagebuilder.nightly.types import NIGHTLY_RUN, Ending, NightlyRun, ProfileRun

RUNS_FOLDER = "nights"
SUFFIX = ".json"
LATEST = "latest.json"
ID = re.compile(r"\d{8}T\d{6}Z-\d{1,10}")


class CellKind(StrEnum):
    """How a profile ended in a nightly run, or why it has no ending."""

    UNCHANGED = "unchanged"
    FRESH = "fresh"
    PROMOTED = "promoted"
    FAILED = "failed"
    CUT_OFF = "cut off"  # the run ended before this profile was finished
    WAITING = "waiting"  # the run is in progress, and this profile is not done
    ABSENT = "not run"


GOOD = frozenset({CellKind.UNCHANGED, CellKind.FRESH, CellKind.PROMOTED})
BAD = frozenset({CellKind.FAILED, CellKind.CUT_OFF})


@dataclass(frozen=True)
class Cell:
    """A profile in a nightly run; `number` is its place among the profiles of that run."""

    run: NightlyRun
    profile: str
    kind: CellKind
    number: int = 0
    done: ProfileRun | None = None


@dataclass(frozen=True)
class ProfileHistory:
    """A profile over several nightly runs, `cells` newest first.

    `streak` is the number of newest runs with the same kind of outcome, and `well` says which kind.
    `stable` is its version now, `moved` the run that moved it (None: before all of these runs).
    `fresh` is the newest run that ended well, and `behind` the number of runs after it.
    """

    profile: str
    cells: tuple[Cell, ...]
    streak: int
    well: bool
    stable: str
    moved: NightlyRun | None
    fresh: NightlyRun | None
    behind: int


@dataclass(frozen=True)
class FoundRuns:
    """Nightly runs, oldest first, and what is wrong with unreadable ones."""

    runs: tuple[NightlyRun, ...]
    faults: tuple[Fault, ...] = ()


def begin_run(profiles: tuple[str, ...], folder: Path) -> NightlyRun:
    """A run of this process that begins now; its id is that of no other run in the folder.

    Where a clock is set back, or begins anew at each boot, a process may have the time and the
    number of an earlier one.
    """
    started, number = datetime.now(UTC), os.getpid()
    taken = {*find_ids(folder)}
    while (name := f"{started:%Y%m%dT%H%M%SZ}-{number}") in taken:
        number += 1
    return NightlyRun(
        id=name,
        started=started.isoformat(timespec="seconds"),
        host=platform.node(),
        tool=__version__,
        planned=profiles,
    )


def find_ids(folder: Path) -> list[str]:
    """The ids of all runs in a folder, oldest first, even if unreadable.

    The run that was saved last is the newest: the clock of runs with later ids was wrong.
    """
    names = (path.name for path in (folder / RUNS_FOLDER).glob(f"*{SUFFIX}"))
    ids = (name.removesuffix(SUFFIX) for name in names)
    latest = find_latest(folder)
    return sorted(filter(is_id, ids), key=lambda each: (not latest or each <= latest.id, each))


def find_latest(folder: Path) -> NightlyRun | None:
    """The run that was saved last, whatever its id; None if unreadable."""
    try:
        return NIGHTLY_RUN.load(folder / LATEST)
    except InputError:
        return None


def is_id(text: str) -> bool:
    """Whether this is a valid id of a run, which is a part of a file's name."""
    return ID.fullmatch(text) is not None


def month_of(id: str) -> str:  # noqa: A002
    """The month of a run: `2026-11`."""
    return f"{id[:4]}-{id[4:6]}"


def read_runs(folder: Path, ids: Sequence[str]) -> FoundRuns:
    runs: list[NightlyRun] = []
    faults: list[Fault] = []
    for each in ids:
        try:
            runs.append(load_run(folder / RUNS_FOLDER / f"{each}{SUFFIX}"))
        except InputError as error:
            faults.extend(error.faults)
    return FoundRuns(tuple(runs), tuple(faults))


def load_run(path: Path) -> NightlyRun:
    """The run in a file.  Raises InputError if it is damaged, or has the id of another run."""
    try:
        found = path.stat()
        return parse_file(path, (found.st_ino, found.st_mtime_ns, found.st_size))
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InputError(what, where=os.fspath(path), hint=NIGHTLY_RUN.hint) from error


@lru_cache(maxsize=128)  # one run reads the same sixty files a dozen times
def parse_file(path: Path, _state: tuple[int, int, int]) -> NightlyRun:
    """Parse each state of the file once.  Raises OSError and InputError."""
    run = NIGHTLY_RUN.load(path)
    if run.id != path.stem:
        raise InputError(f"is the run {run.id!r}", where=os.fspath(path), hint=NIGHTLY_RUN.hint)
    return run


def profiles_of(runs: Sequence[NightlyRun]) -> tuple[str, ...]:
    """The profiles of these runs, newest first: those of the newest run, then older ones."""
    named = (
        name for run in runs for name in (*run.planned, *(done.profile for done in run.profiles))
    )
    return tuple(dict.fromkeys(named))


def find_cell(run: NightlyRun, profile: str, *, running: bool) -> Cell:
    """A profile in a run; `running` says that an unfinished run is in progress, not cut off."""
    for number, done in enumerate(run.profiles):
        if done.profile == profile:
            return Cell(run, profile, CellKind(done.ending), number, done)
    if run.finished or profile not in run.planned:
        return Cell(run, profile, CellKind.ABSENT)
    return Cell(run, profile, CellKind.WAITING if running else CellKind.CUT_OFF)


def find_records(runs: Sequence[NightlyRun], *, running: bool) -> tuple[ProfileHistory, ...]:
    """Every profile of these runs, newest first; `running` says that the first is in progress."""
    return tuple(find_record(runs, profile, running=running) for profile in profiles_of(runs))


def find_record(runs: Sequence[NightlyRun], profile: str, *, running: bool) -> ProfileHistory:
    cells = tuple(
        find_cell(run, profile, running=running and number == 0) for number, run in enumerate(runs)
    )
    told = [cell for cell in cells if cell.kind in GOOD | BAD]
    well = bool(told) and told[0].kind in GOOD
    good = [number for number, cell in enumerate(told) if cell.kind in GOOD]
    stable, moved = find_move([cell for cell in cells if cell.done])
    return ProfileHistory(
        profile=profile,
        cells=cells,
        streak=sum(1 for _ in same(told, well=well)),
        well=well,
        stable=stable,
        moved=moved,
        fresh=told[good[0]].run if good else None,
        behind=good[0] if good else len(told),
    )


def same(cells: Sequence[Cell], *, well: bool) -> Iterator[Cell]:
    """The first cells with the same kind of outcome."""
    for cell in cells:
        if (cell.kind in GOOD) is not well:
            return
        yield cell


def find_move(cells: Sequence[Cell]) -> tuple[str, NightlyRun | None]:
    """The stable version, and the run that moved it; `cells` newest first, all of them done."""
    stables = [cell.done.stable for cell in cells if cell.done]
    if not stables:
        return "", None
    other = next((n for n, stable in enumerate(stables) if stable != stables[0]), 0)
    return stables[0], cells[other - 1].run if other else None


def count_security(run: NightlyRun) -> int:
    """The number of packages of a run that came from a security pocket."""
    return sum(change.security for done in run.profiles for change in done.changes)


def unchanged(run: NightlyRun) -> bool:
    """Whether the run is finished and changed nothing."""
    quiet = all(done.ending is Ending.UNCHANGED and not done.warnings for done in run.profiles)
    return run.finished and quiet and not run.warnings
