# SPDX-License-Identifier: Apache-2.0
"""What changes upstream in each night and what goes wrong in it, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

# How often each fault comes, at least.
TIMES = 3
ALPHA, BETA = "alpha-server", "beta-server"


class Kind(StrEnum):
    """A kind of fault, as the table of a run names it."""

    DOWN = "mirror down: connections refused"
    FAILING = "mirror answers 503"
    SILENT = "mirror says nothing and hangs up"
    TRUNCATED = "package cut short"
    GARBLED = "package of other bytes"
    EXPIRED = "Release file past its end"
    FULL = "disk full"
    BOOT = "boot test fails once"
    KILLED = "kill -9"
    CLOCK = "clock of the builder jumps"
    BROKEN = "package that does not boot"


# These do nothing to a night in which nothing is to be built.
OF_CHANGES = frozenset({Kind.TRUNCATED, Kind.GARBLED, Kind.FULL, Kind.BOOT, Kind.KILLED})
# The others come on top of what a night has.
ALONE = (
    Kind.TRUNCATED, Kind.GARBLED, Kind.FULL, Kind.DOWN, Kind.FAILING, Kind.SILENT, Kind.EXPIRED,
    Kind.CLOCK,
)  # fmt: skip


class Moment(StrEnum):
    """When a night is killed, or finds the disk full."""

    START = "at its start"
    LOCK = "while it locks"
    BUILD = "while it builds"
    PUBLISH = "while it publishes"
    HALF = "between the root and the release"
    PROMOTE = "while it promotes"


KILLS = (Moment.LOCK, Moment.BUILD, Moment.PUBLISH, Moment.HALF, Moment.PROMOTE)
FILLS = (Moment.START, Moment.BUILD, Moment.PUBLISH)


@dataclass(frozen=True)
class Fault:
    """One fault of a night; it is over `minutes` after the night began.

    `moment` is when it comes, `delay` seconds after that; `days` is how far the clock jumps.
    """

    kind: Kind
    minutes: int = 0
    moment: Moment = Moment.START
    delay: float = 0.0
    days: int = 0


@dataclass(frozen=True)
class Change:
    """A package that has a new version upstream, from the security suite or the main one."""

    package: str
    security: bool = False


@dataclass(frozen=True)
class NightPlan:
    """A night to come; `again` says that the mirror signs its Release anew without a change."""

    number: int
    changes: tuple[Change, ...]
    faults: tuple[Fault, ...]
    again: bool = False


def draw_plans(seed: int, nights: int) -> tuple[NightPlan, ...]:
    """The nights from 1 to `nights` (12 at least)."""
    chance = random.Random(seed)
    numbers = range(1, nights + 1)
    quiet = set(chance.sample(numbers[2:], max(2, nights // 6)))
    broken = chance.choice([n for n in numbers[2:-1] if n not in quiet and n + 1 not in quiet])
    faults = spread(chance, numbers, quiet, broken)
    plans = []
    for number in numbers:
        drawn = [] if number in quiet else [*draw_changes(chance, broken=number == broken)]
        if number == broken + 1 and BETA not in {change.package for change in drawn}:
            drawn.append(Change(BETA))  # upstream mends what it broke
        again = number in quiet and chance.random() < 0.5
        plans.append(NightPlan(number, tuple(drawn), tuple(faults[number]), again))
    return tuple(plans)


def draw_changes(chance: random.Random, *, broken: bool) -> Iterator[Change]:
    """What changes: mostly a service, sometimes what all have, now and then the kernel."""
    if broken:
        yield Change(BETA)
        return
    names = (ALPHA, BETA, "libtiny", "dracut", "linux-image-tiny")
    first = chance.choices(names, weights=(5, 5, 3, 1, 1))[0]
    for name in dict.fromkeys((first, *chance.sample(names[:2], k=int(chance.random() < 0.25)))):
        yield Change(name, security=chance.random() < 0.3)


def spread(
    chance: random.Random, numbers: Sequence[int], quiet: set[int], broken: int
) -> dict[int, list[Fault]]:
    """Every kind TIMES times or more; one a night, and a kill or a failing boot test with it.

    The first night and two in which nothing changes are spared, and the broken package is alone.
    """
    faults: dict[int, list[Fault]] = {number: [] for number in numbers}
    faults[broken].append(Fault(Kind.BROKEN))
    times = min(TIMES, len(numbers) // 10)
    spared = {numbers[0], broken, *sorted(quiet)[:2]}
    for kind in sorted(ALONE, key=lambda kind: kind not in OF_CHANGES):
        free = [
            n
            for n in numbers
            if n not in spared and not faults[n] and not (n in quiet and kind in OF_CHANGES)
        ]
        # Where nothing changes only an archive can fail: those nights are left for such faults.
        for turn, number in enumerate(chance.sample(free, times)):
            faults[number].append(draw_fault(chance, kind, turn))
    for kind, count in ((Kind.KILLED, len(KILLS) * times // TIMES), (Kind.BOOT, times)):
        free = [n for n in numbers if n not in spared | quiet and len(faults[n]) < 2]
        for turn, number in enumerate(chance.sample(free, count)):
            faults[number].append(draw_fault(chance, kind, turn))
    return faults


def draw_fault(chance: random.Random, kind: Kind, turn: int) -> Fault:
    """One fault; number `turn` of its kind, so that every moment has its turn."""
    minutes = chance.choice((2, 4, 4, 12, 25))
    if kind is Kind.KILLED:
        moment = KILLS[turn % len(KILLS)]
        most = {Moment.LOCK: 1.0, Moment.BUILD: 1.5, Moment.PUBLISH: 0.15}.get(moment, 0.0)
        return Fault(kind, 0, moment, chance.random() * most)
    if kind is Kind.FULL:
        moment = FILLS[turn % len(FILLS)]
        most = {Moment.START: 0.1, Moment.BUILD: 0.3}.get(moment, 0.0)
        return Fault(kind, minutes, moment, chance.random() * most)
    if kind is Kind.CLOCK:
        return Fault(kind, minutes, days=chance.choice((-4000, -3, 2, 40)))
    return Fault(kind, minutes)
