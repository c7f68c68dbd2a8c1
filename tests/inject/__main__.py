# SPDX-License-Identifier: Apache-2.0
"""Spoil every change of the file system: python -m tests.inject [--case NAME]... [--sample N]

Each command runs once for every call that changes a file below its world, in whichever of its
processes, and for each of: the call fails with EIO, the disk is full from there on, everything is
killed there.  Needs root and cc; runs in memory and in a mount namespace of its own.  --sample
takes so many points of all, by chance (--seed).  Of the thousands that a build has, each twentieth
is taken unless --every says otherwise; calls inside of a build sandbox are not counted.

exit: 0 when the state was the old or the new one, the exit status true, and the same command again
led to where it leads undisturbed, every time; 1 otherwise
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.process import run
from tests.inject.builder import upstream
from tests.inject.cases import CASES
from tests.inject.room import Mode, inside, make_room
from tests.integration.published import memory_folder
from tests.integration.started import orphans_are_ours

MODES = (Mode.EIO, Mode.FULL, Mode.KILL)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.inject", description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=0, help="begin no more after so long")
    parser.add_argument("--mode", action="append", choices=[mode.name for mode in MODES])
    parser.add_argument("--plant", action="store_true", help="a fault that must be found")
    parser.add_argument("--every", type=int, default=0, help="each so many'th point")
    parser.add_argument("--point", type=int, default=0, help="this alone; -1 is the last")
    parser.add_argument("--room", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Make the room, then run this again inside of it."""
    given = parse(words)
    if given.room:
        with orphans_are_ours():
            return inject(given)
    with memory_folder() as room:
        make_room(room)
        with upstream(room, given.case or CASES):
            done = run(inside(room, words), env={"PYTHONDONTWRITEBYTECODE": "1"}, check=False)
    print(done.stderr, end="", file=sys.stderr)
    print(done.stdout, end="")
    return done.status


def inject(given: argparse.Namespace) -> int:
    """All that was asked for, in the room."""
    from tests.inject.driver import Driver, plant  # what the outer process need not load

    names = given.case or list(CASES)
    chance = random.Random(given.seed)
    driver = Driver(given.room, names)
    if given.plant:
        plant()
    begun = time.monotonic()
    expected = {name: driver.expect(CASES[name]) for name in names}
    todo = [
        (name, mode, point)
        for name in names
        for mode in MODES
        if not given.mode or mode.name in given.mode
        for point in points_of(expected[name].points, given, CASES[name].every, chance)
    ]
    if given.sample:
        todo = chance.sample(todo, min(given.sample, len(todo)))
    wrong = runs = 0
    for name, mode, point in todo:
        if given.seconds and time.monotonic() - begun > given.seconds:
            break
        runs += 1
        if found := driver.disturb(name, expected[name], mode, point):
            wrong += 1
            print(found, file=sys.stderr, flush=True)
    told = {
        "points": {name: each.points for name, each in expected.items()},
        "of": len(todo),
        "runs": runs,
        "violations": wrong,
        "seconds": round(time.monotonic() - begun, 1),
        "seed": given.seed,
    }
    print(json.dumps(told))
    return 1 if wrong else 0


def points_of(
    count: int, given: argparse.Namespace, every: int, chance: random.Random
) -> Sequence[int]:
    """The points of a case that are asked for; a negative one counts from the end."""
    if given.point:
        return [given.point if given.point > 0 else count + 1 + given.point]
    step = given.every or every
    return range(1 + chance.randrange(step), count + 1, step)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
