# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a nightly run: as one fault of its report, and what is tried again.

In the same run is retried what may succeed later: an archive that was unreachable or being updated,
a disk that was full.  Other errors (a recipe, a package that does not build, an image that does not
boot, a missing tool) need a person.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from imagebuilder.errors import Fault, FullError, ImagebuilderError
from imagebuilder.files import is_disk_full
from imagebuilder.lock.changes import join_changes
from imagebuilder.nightly.types import Ending, NightlyStage, ProfileRun

# Errors of one profile that do not end the run; anything else is a bug, which is recorded too.
TROUBLES = (ImagebuilderError, OSError)
# Seconds between the attempts of a run: most mirrors are back after minutes, an update of one takes
# a quarter of an hour, and if nothing helps the run should end an hour after the timer.
WAITS_S = (300.0, 900.0, 1800.0)
SETTLED = (Ending.FRESH, Ending.PROMOTED)


def fault_of(error: BaseException) -> Fault:
    """An error as one fault: its first one, with the number of the others."""
    if isinstance(error, ImagebuilderError):
        first, more = error.faults[0], len(error.faults) - 1
        return replace(first, what=f"{first.what} (and {more} more)") if more else first
    if isinstance(error, OSError):
        where = os.fspath(error.filename) if isinstance(error.filename, str | bytes) else "system"
        return Fault(str(where), error.strerror or str(error))
    if isinstance(error, KeyboardInterrupt):
        return Fault("", "interrupted", "the next run continues from here")
    return Fault(
        "", f"a bug in imagebuilder: {type(error).__name__}: {error}",
        "report it and attach the log",
    )  # fmt: skip


def in_a_line(fault: Fault) -> str:
    """A fault in one line: its place, and the first line of its text."""
    what = fault.what.partition("\n")[0]
    return f"{fault.where}: {what}" if fault.where else what


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
