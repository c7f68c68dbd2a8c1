# SPDX-License-Identifier: Apache-2.0
"""What a killed run did: it could not report that, so the next run does.

The record of a run says what was done when it was last saved.  Before a profile changes its lock
file or the tree, its progress is saved as `begun`.  Whether the lock file was written after that is
seen from the lock file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.lock.changes import PackageChange
from imagebuilder.lock.file import find_lock
from imagebuilder.nightly.choose import digest_of_lock
from imagebuilder.nightly.history import find_ids, read_runs
from imagebuilder.nightly.message import done_lines, failed_lines
from imagebuilder.nightly.types import Ending, NightlyRun, ProfileRun
from imagebuilder.settings import Settings


def find_killed(folder: Path, latest: NightlyRun | None, id: str) -> NightlyRun | None:  # noqa: A002
    """The run before the run `id`, which is not saved yet, if that never finished.

    `latest` was saved last, whatever its id.  A run that was killed while it was saved for the
    first time is only in its own file.
    """
    if latest and not latest.finished:
        return latest
    older = sorted(each for each in find_ids(folder) if each < id)
    return next((each for each in read_runs(folder, older[-1:]).runs if not each.finished), None)


def find_untold(killed: NightlyRun, settings: Settings) -> tuple[ProfileRun, ...]:
    """What a killed run did to each profile, and killed runs before it that it had to report."""
    found: dict[str, list[ProfileRun]] = {}
    begun = [cut_off(killed.begun, killed.id)] if killed.begun else []
    for done in (*begun, *killed.profiles, *killed.untold):
        found.setdefault(done.profile, []).append(done)
    last = {profile: newest_first[0] for profile, newest_first in found.items()}
    return tuple(
        replace(done, seconds={}, changes=changes_of(found[profile], settings))
        for profile, done in last.items()
        if done.ending is not Ending.UNCHANGED or done.warnings
    )


def cut_off(begun: ProfileRun, id: str) -> ProfileRun:  # noqa: A002
    """A profile that the run `id` had begun when it was killed."""
    what = f"run {id} was killed in stage {begun.stage}"
    where = f"{begun.profile}@{begun.version}" if begun.version else begun.profile
    return replace(begun, ending=Ending.FAILED, fault=begun.fault or Fault(where, what))


def changes_of(newest_first: Sequence[ProfileRun], settings: Settings) -> tuple[PackageChange, ...]:
    """The changes that led to the lock file as it is now; the next run finds all others again."""
    try:
        there = find_lock(settings.lock_file(newest_first[0].profile))
    except InputError:
        return ()
    digest = digest_of_lock(there) if there else ""
    return next((done.changes for done in newest_first if digest and done.lock == digest), ())


def render_untold(done: ProfileRun) -> Iterator[str]:
    """What a killed run did to a profile that no later run processed, a line each."""
    lines = failed_lines(done) if done.failed else done_lines(done)
    yield from (f"a killed run did this: {line.strip()}" for line in lines if line.strip())
