# SPDX-License-Identifier: Apache-2.0
"""Further rounds of a night: when, after what, and what is told of two rounds."""

from __future__ import annotations

import errno
import io
from dataclasses import replace

import pytest

from imagebuilder.errors import Fault, FullError, HostError, InputError, WorkError
from imagebuilder.nightly.context import Attempt
from imagebuilder.nightly.faults import find_waits, is_full, merged
from imagebuilder.nightly.types import Ending, NightlyStage, ProfileRun
from imagebuilder.ui import Ui

AWAY = ProfileRun(
    "rx", Ending.FAILED, NightlyStage.LOCK, {NightlyStage.LOCK: 1.0},
    Fault("debian", "mirror is not reachable"), previous="1", stable="1",
)  # fmt: skip
OLD = replace(
    AWAY, ending=Ending.PROMOTED, stage=NightlyStage.PROMOTE, fault=None, version="2", stable="2",
    published=10, reasons=("a file changed",), warnings=("the lock was not refreshed",),
)  # fmt: skip
NEW = replace(
    OLD, version="3", previous="2", stable="3", reasons=("packages changed",), warnings=()
)
SAME = replace(OLD, ending=Ending.UNCHANGED, previous="2", published=0, reasons=(), warnings=())


@pytest.mark.parametrize(
    ("patience", "waits"),
    [(0, []), (60, [60]), (1000, [300, 700]), (3600, [300, 900, 1800]), (9e9, [300, 900, 1800])],
)
def test_waits_are_within_the_patience(patience: float, waits: list[float]) -> None:
    assert list(find_waits(patience)) == waits


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (FullError("no space left: 1 MB to fetch, 0 MB free"), True),
        (HostError("no space left, somebody says"), False),
        (HostError("dracut is not installed"), False),
        (WorkError("script failed: No space left on device"), False),
        (InputError("no overlay named x"), False),
    ],
)
def test_full_disks(error: Exception, full: bool) -> None:  # noqa: FBT001  # a column
    assert is_full(error) is full


def test_what_went_well_the_second_time_is_told_with_the_first() -> None:
    told = merged(AWAY, NEW)
    assert (told.ending, told.version, told.previous) == (Ending.PROMOTED, "3", "1")
    assert told.warnings == ("tried again after: debian: mirror is not reachable",)
    assert told.seconds[NightlyStage.LOCK] == 2.0


def test_two_releases_in_one_night() -> None:
    told = merged(OLD, NEW)
    assert (told.version, told.previous, told.published) == ("3", "1", 20)
    assert told.reasons == ("packages changed",)
    assert told.warnings == OLD.warnings


@pytest.mark.parametrize(
    ("later", "warnings"),
    [
        (
            replace(AWAY, log="a.log", warnings=("no room",)),
            ("the next attempt failed in stage lock: debian: mirror is not reachable", "no room"),
        ),
        (SAME, ()),
    ],
)
def test_nothing_is_taken_back_and_a_fault_is_told(
    later: ProfileRun, warnings: tuple[str, ...]
) -> None:
    told = merged(OLD, later)
    assert (told.ending, told.version, told.fault) == (Ending.PROMOTED, "2", None)
    assert told.reasons == OLD.reasons
    assert told.warnings == (*OLD.warnings, *warnings)
    assert told.log == later.log


def test_two_failures_are_the_second_and_the_first_is_told() -> None:
    later = replace(AWAY, stage=NightlyStage.BUILD, fault=Fault("", "script failed"))
    told = merged(AWAY, later)
    assert (told.ending, told.stage, told.fault) == (Ending.FAILED, NightlyStage.BUILD, later.fault)
    assert told.warnings == ("tried again after: debian: mirror is not reachable",)
    assert merged(AWAY, AWAY).warnings == ()
    third = merged(told, AWAY)
    assert third.fault == AWAY.fault
    assert third.warnings == (*told.warnings, "tried again after: script failed")


def test_a_roll_out_that_fails_hides_no_earlier_failure() -> None:
    attempt = Attempt("rx", Ui(io.StringIO()))
    attempt.fail(WorkError("script failed"), "")
    assert not attempt.known.warnings
    attempt.fail(WorkError("no node follows it"), "")
    assert attempt.known.fault == Fault("", "no node follows it")
    assert attempt.known.warnings == ("had failed before: script failed",)
