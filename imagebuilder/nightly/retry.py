# SPDX-License-Identifier: Apache-2.0
"""Retry in the same run what may succeed later: an archive that was unreachable or being updated, a
disk that was full.

Other errors (a recipe, a package that does not build, an image that does not boot, a missing tool)
need a person.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from imagebuilder.errors import FullError
from imagebuilder.files import is_disk_full
from imagebuilder.lock.changes import join_changes
from imagebuilder.nightly.faults import in_a_line
from imagebuilder.nightly.types import Ending, NightlyStage, ProfileRun

# Seconds between the attempts of a run: most mirrors are back after minutes, an update of one takes
# a quarter of an hour, and if nothing helps the run should end an hour after the timer.
WAITS_S = (300.0, 900.0, 1800.0)
SETTLED = (Ending.FRESH, Ending.PROMOTED)


def find_waits(patience: float) -> Iterator[float]:
    """The seconds to wait before each further attempt, at most `patience` in total."""
    for wait in WAITS_S:
        if patience <= 0:
            return
        yield min(wait, patience)
        patience -= wait


def is_full(error: BaseException) -> bool:
    """Whether a disk was full: pruning may free space."""
    return isinstance(error, FullError) or (isinstance(error, OSError) and is_disk_full(error))


def merged(first: ProfileRun, later: ProfileRun) -> ProfileRun:
    """The result of a profile after another attempt: the better of its endings.

    A failed attempt does not undo what an earlier one released, and an attempt that found nothing
    newer changes nothing.  The fault that the result does not have becomes a warning.
    """
    stays = first.ending in SETTLED and later.ending not in SETTLED
    told = replace(first, log=later.log) if stays else later
    faults = []
    if first.fault and first.fault != told.fault:
        faults.append(f"tried again after: {in_a_line(first.fault)}")
    if later.fault and later.fault != told.fault:
        faults.append(f"the next attempt failed in stage {later.stage}: {in_a_line(later.fault)}")
    return replace(
        told,
        ending=ending_of(told, first, later.stable),
        changes=join_changes(
            first.changes if stays or first.lock else (),
            later.changes if not stays or later.lock else (),
        ),
        lock=later.lock or first.lock,
        seconds={
            stage: round(first.seconds.get(stage, 0.0) + later.seconds.get(stage, 0.0), 3)
            for stage in NightlyStage
            if stage in first.seconds or stage in later.seconds
        },
        previous=first.previous,
        published=first.published + later.published,
        candidate=later.candidate,
        stable=later.stable,
        warnings=tuple(dict.fromkeys((*first.warnings, *faults, *later.warnings))),
    )


def ending_of(told: ProfileRun, first: ProfileRun, stable: str) -> Ending:
    """The ending of the result `told`; what the first attempt made is not news to the later one."""
    if told.ending not in (Ending.UNCHANGED, Ending.FRESH) or not told.version:
        return told.ending
    if stable == told.version and first.stable != stable:
        return Ending.PROMOTED
    made = first.version == told.version and first.previous != told.version
    return Ending.FRESH if made else told.ending
