# SPDX-License-Identifier: Apache-2.0
"""The nights that were, FOLDER/nights/ID.json, and what they say of a profile over time.

An id begins with the time, so names sort as nights do.  A clock that jumped makes a night of a time
to come: it stays the newest of the old ones, and a night that runs is newer than all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.nightly.types import NIGHTLY_RUN, Ending, NightlyRun, ProfileRun

NIGHTS = "nights"
SUFFIX = ".json"
ID = re.compile(r"\d{8}T\d{6}Z-\d{1,10}")


class CellKind(StrEnum):
    """What became of a profile in a night: an ending, or why there is none."""

    UNCHANGED = "unchanged"
    FRESH = "fresh"
    PROMOTED = "promoted"
    FAILED = "failed"
    CUT_OFF = "cut off"  # the run ended before this profile was finished
    WAITING = "waiting"  # the night runs, and its turn is not over
    ABSENT = "not run"


GOOD = frozenset({CellKind.UNCHANGED, CellKind.FRESH, CellKind.PROMOTED})
BAD = frozenset({CellKind.FAILED, CellKind.CUT_OFF})


@dataclass(frozen=True)
class Cell:
    """A profile in a night; `number` is its place among the profiles of that night."""

    night: NightlyRun
    profile: str
    kind: CellKind
    number: int = 0
    done: ProfileRun | None = None


@dataclass(frozen=True)
class ProfileHistory:
    """A profile over the nights, `cells` newest first.

    `streak` nights without another kind of outcome end with the newest, and `well` says which.
    `stable` is what it is now, `moved` the night that it became so in (None: before all of them).
    `fresh` is the newest night that ended well, and `behind` how many came after it.
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
class FoundNights:
    """Nights, oldest first, and what is wrong with those that cannot be read."""

    nights: tuple[NightlyRun, ...]
    faults: tuple[Fault, ...] = ()


def find_ids(folder: Path) -> list[str]:
    """The ids of the nights in a folder, oldest first, whether they can be read or not."""
    names = (path.name for path in (folder / NIGHTS).glob(f"*{SUFFIX}"))
    return sorted(name.removesuffix(SUFFIX) for name in names if is_id(name.removesuffix(SUFFIX)))


def is_id(text: str) -> bool:
    """Whether it can be the id of a night, and so a part of a file's name."""
    return ID.fullmatch(text) is not None


def month_of(id: str) -> str:  # noqa: A002
    """The month of a night: `2026-11`."""
    return f"{id[:4]}-{id[4:6]}"


def read_nights(folder: Path, ids: Sequence[str]) -> FoundNights:
    nights: list[NightlyRun] = []
    faults: list[Fault] = []
    for each in ids:
        try:
            nights.append(load_night(folder / NIGHTS / f"{each}{SUFFIX}"))
        except InputError as error:
            faults.extend(error.faults)
    return FoundNights(tuple(nights), tuple(faults))


def load_night(path: Path) -> NightlyRun:
    """The night in a file.  Raises InputError when it is damaged or another one."""
    try:
        found = path.stat()
        return parse_file(path, (found.st_ino, found.st_mtime_ns, found.st_size))
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InputError(what, where=os.fspath(path), hint=NIGHTLY_RUN.hint) from error


@lru_cache(maxsize=128)  # a night reads the same sixty a dozen times
def parse_file(path: Path, _state: tuple[int, int, int]) -> NightlyRun:
    """The same, once for each state of the file.  Raises OSError and InputError."""
    night = NIGHTLY_RUN.load(path)
    if night.id != path.stem:
        raise InputError(f"is the night {night.id!r}", where=os.fspath(path), hint=NIGHTLY_RUN.hint)
    return night


def profiles_of(nights: Sequence[NightlyRun]) -> tuple[str, ...]:
    """The profiles of these nights, newest first, as the newest has them and then older ones."""
    named = (
        name
        for night in nights
        for name in (*night.planned, *(done.profile for done in night.profiles))
    )
    return tuple(dict.fromkeys(named))


def find_cell(night: NightlyRun, profile: str, *, runs: bool) -> Cell:
    """A profile in a night; `runs` says that an unfinished night is under way, not cut off."""
    for number, done in enumerate(night.profiles):
        if done.profile == profile:
            return Cell(night, profile, CellKind(done.ending), number, done)
    if night.finished or profile not in night.planned:
        return Cell(night, profile, CellKind.ABSENT)
    return Cell(night, profile, CellKind.WAITING if runs else CellKind.CUT_OFF)


def find_records(nights: Sequence[NightlyRun], *, runs: bool) -> tuple[ProfileHistory, ...]:
    """Every profile of these nights, newest first; `runs` says that the first is under way."""
    return tuple(find_record(nights, profile, runs=runs) for profile in profiles_of(nights))


def find_record(nights: Sequence[NightlyRun], profile: str, *, runs: bool) -> ProfileHistory:
    cells = tuple(
        find_cell(night, profile, runs=runs and number == 0) for number, night in enumerate(nights)
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
        fresh=told[good[0]].night if good else None,
        behind=good[0] if good else len(told),
    )


def same(cells: Sequence[Cell], *, well: bool) -> Iterator[Cell]:
    """The cells at the beginning that all ended well, or all did not."""
    for cell in cells:
        if (cell.kind in GOOD) is not well:
            return
        yield cell


def find_move(cells: Sequence[Cell]) -> tuple[str, NightlyRun | None]:
    """What is stable, and in which night it became so; `cells` newest first, all of them done."""
    stables = [cell.done.stable for cell in cells if cell.done]
    if not stables:
        return "", None
    other = next((n for n, stable in enumerate(stables) if stable != stables[0]), 0)
    return stables[0], cells[other - 1].night if other else None


def count_security(night: NightlyRun) -> int:
    """How many packages of a night came from a security pocket."""
    return sum(change.security for done in night.profiles for change in done.changes)


def unchanged(night: NightlyRun) -> bool:
    """Whether a finished night has nothing to tell."""
    quiet = all(done.ending is Ending.UNCHANGED and not done.warnings for done in night.profiles)
    return night.finished and quiet and not night.warnings
