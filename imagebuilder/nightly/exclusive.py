# SPDX-License-Identifier: Apache-2.0
"""One nightly run at a time, and what a killed one left and did.

It could not report what it did, so the next run does.  The record of a run says what was done when
it was last saved.  Before a profile changes its lock file or the tree, its progress is saved as
`begun`.  Whether the lock file was written after that is seen from the lock file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import Fault, HostError, InputError
from imagebuilder.files import read_text, remove_unfinished
from imagebuilder.lock.changes import PackageChange
from imagebuilder.lock.file import find_lock
from imagebuilder.locks import file_lock
from imagebuilder.nightly.choose import digest_of_lock
from imagebuilder.nightly.history import find_ids, read_runs
from imagebuilder.nightly.message import done_lines, failed_lines
from imagebuilder.nightly.types import Ending, NightlyRun, ProfileRun
from imagebuilder.settings import Settings
from imagebuilder.store.workplace import sweep
from imagebuilder.tree import Tree


class RunningError(HostError):
    """Another nightly run is in progress."""


@contextmanager
def single_run(state: Path, name: str) -> Iterator[None]:
    """Be the only nightly run on this builder; `name` identifies it to others.

    The kernel releases the lock with the process.  Raises RunningError that names the other
    run.
    """
    path = state / "locks" / "nightly"

    def refuse() -> None:
        who = read_text(path).strip()
        raise RunningError(
            f"another nightly run is in progress: {who or 'it has just begun'}",
            where=os.fspath(path),
            hint="wait until it has finished, or run systemctl stop imagebuilder-nightly",
        )

    with file_lock(path, waiting=refuse):
        with contextlib.suppress(OSError):  # on a full disk the lock counts, not the name
            path.write_text(f"{name}, process {os.getpid()}\n")
        yield


def sweep_leftovers(settings: Settings, tree: Tree) -> None:
    """Remove what killed commands left, to free space.  Raises WorkError and OSError."""
    for top in (settings.state, tree.path):
        with file_lock(top / "locks" / "work"):
            sweep(top / "work")
    for path in settings.locks.glob(".*.lock.new"):
        remove_unfinished(path)


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
