# SPDX-License-Identifier: Apache-2.0
"""What may go well in a while is tried again in the same night: an archive that was away or in the
middle of an update, a disk that was full.

What will not go better by itself (a recipe, a package that does not build, an image that does not
boot, a tool that is not installed) waits for a person.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from imagebuilder.errors import FullError
from imagebuilder.files import is_disk_full
from imagebuilder.nightly.faults import in_a_line
from imagebuilder.nightly.types import Ending, NightlyStage, ProfileRun

# Seconds between the rounds of a night: most mirrors are back after minutes, an update of one takes
# a quarter of an hour, and an hour after the timer the night shall be over where nothing helps.
WAITS_S = (300.0, 900.0, 1800.0)
SETTLED = (Ending.FRESH, Ending.PROMOTED)


def find_waits(patience: float) -> Iterator[float]:
    """The seconds to wait before each further round, `patience` in all at most."""
    for wait in WAITS_S:
        if patience <= 0:
            return
        yield min(wait, patience)
        patience -= wait


def is_full(error: BaseException) -> bool:
    """Whether a disk was full: pruning, or somebody else, may make room."""
    return isinstance(error, FullError) or (isinstance(error, OSError) and is_disk_full(error))


def merged(first: ProfileRun, later: ProfileRun) -> ProfileRun:
    """What is to be told of a profile that was tried a second time: the better of its endings.

    A round that failed takes nothing back of what an earlier one released, and one that found
    nothing newer is no news.
    """
    told = later
    if first.ending in SETTLED and later.ending not in SETTLED:
        told = replace(first, warnings=())
    warnings = list(first.warnings)
    if first.failed and not later.failed and first.fault:
        warnings.append(f"tried again, after {in_a_line(first.fault)}")
    return replace(
        told,
        seconds={
            stage: round(first.seconds.get(stage, 0.0) + later.seconds.get(stage, 0.0), 3)
            for stage in NightlyStage
            if stage in first.seconds or stage in later.seconds
        },
        previous=first.previous,
        published=first.published + later.published,
        candidate=later.candidate,
        stable=later.stable,
        warnings=tuple(dict.fromkeys((*warnings, *later.warnings))),
    )
