# SPDX-License-Identifier: Apache-2.0
"""A nightly run: every profile from its lock to its channel, independently, with a record."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep, time
from typing import Protocol

from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.fleet.rollout.message import TellRollout, tell_nobody
from imagebuilder.lock.file import load_lock
from imagebuilder.log import APPEND
from imagebuilder.nightly.commit import commit_locks
from imagebuilder.nightly.context import Attempt, Boot, Nightly
from imagebuilder.nightly.exclusive import (
    find_killed,
    find_untold,
    render_untold,
    single_run,
    sweep_leftovers,
)
from imagebuilder.nightly.faults import TROUBLES, fault_of, find_waits, in_a_line, merged
from imagebuilder.nightly.history import RUNS_FOLDER, begin_run, find_latest
from imagebuilder.nightly.profile import run_profile
from imagebuilder.nightly.rollout import roll_out
from imagebuilder.nightly.save import save_run
from imagebuilder.nightly.space import prune
from imagebuilder.nightly.types import (
    Ending,
    NightlyOptions,
    NightlyRun,
    NightlyStage,
    ProfileRun,
    Pruned,
)
from imagebuilder.nightly.upstream import Upstream, clock_warnings
from imagebuilder.nodes.references import find_version
from imagebuilder.pipeline import mirrors_of
from imagebuilder.plain import open_plain
from imagebuilder.report.types import Report
from imagebuilder.rights import check_root
from imagebuilder.settings import Settings
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui, format_duration


class TellRun(Protocol):
    """Notifies people about a run; `after_kill` is whether the run before was killed."""

    def __call__(self, run: NightlyRun, *, after_kill: bool) -> None: ...


def notify_nobody(run: NightlyRun, *, after_kill: bool) -> None:
    """The default for `told`: notify nobody."""


def run_nightly(
    options: NightlyOptions,
    settings: Settings,
    tree: Tree,
    ui: Ui,
    *,
    boot: Boot | None = None,
    wait: Callable[[float], None] = sleep,
    told: TellRun = notify_nobody,
    tell_rollout: TellRollout = tell_nobody,
) -> NightlyRun:
    """Process every profile of `options` from its lock to its channel, and save each step.

    `tree` was made by make_tree().  `boot` tests a release and saves its report (default: as
    imagebuilder test does); `wait` waits for some seconds; `told` is called once with the complete
    run, even if it is interrupted, before its record counts as finished; `tell_rollout` for each
    status of a roll-out.  The result says what happened to each profile.  Raises RunningError if
    another run is in progress, RootError if we are not root, OSError if the state cannot be
    written, and passes on KeyboardInterrupt.
    """
    check_root("a nightly run")
    run = begin_run(options.profiles, options.folder)
    with single_run(settings.state, f"run {run.id}"):
        record = RunRecord(run, options.folder, tree, ui)
        upstream = Upstream(find_archives(settings, record), settings.cache, ui)
        boot = boot or boot_test(settings.find_overlays())
        nightly = Nightly(options, settings, tree, ui, boot, upstream, run.id, wait, tell_rollout)
        try:
            run_stages(record, nightly)
        except KeyboardInterrupt as error:
            record.interrupt(error)
            raise
        finally:
            record.finish(told)
    return record.run


class RunRecord:
    """A run in progress, saved after each change unless the disk is full.

    `after_kill` is whether the run before was killed, or lost its power.
    """

    def __init__(self, run: NightlyRun, folder: Path, tree: Tree, ui: Ui) -> None:
        self.run = run
        self._folder = folder
        self._tree = tree
        self._ui = ui
        self._clock = monotonic()
        self.after_kill = False

    def save(self) -> None:
        """Save the record.  A full disk must not stop the run."""
        seconds = round(monotonic() - self._clock, 3)
        self.run = replace(self.run, seconds=seconds)
        try:
            save_run(self.run, self._folder, self._tree)
        except TROUBLES as error:
            self.warn(f"could not save the report: {in_a_line(fault_of(error))}")

    def warn(self, text: str) -> None:
        """Print and record a warning that concerns no single profile; record it once."""
        self._ui.warn(text)
        self.run = replace(self.run, warnings=tuple(dict.fromkeys((*self.run.warnings, text))))

    def find(self, profile: str) -> ProfileRun | None:
        return next((each for each in self.run.profiles if each.profile == profile), None)

    def resume(self, killed: NightlyRun, settings: Settings) -> None:
        """Take over what a killed run could not report; what it did is reported as done here."""
        self.after_kill = True
        self.run = replace(self.run, untold=find_untold(killed, settings))
        self.warn(f"run {killed.id} never finished: it was killed, or the power failed")

    def begin(self, known: ProfileRun) -> None:
        """Save the progress of a profile that is about to change something."""
        begun = self.after_earlier(with_channels(known, self._tree))
        self.run = replace(self.run, begun=begun)
        self.save()

    def add(self, done: ProfileRun) -> None:
        """Record a finished attempt of a profile, merged with an earlier one."""
        done = self.after_earlier(done)
        untold = tuple(each for each in self.run.untold if each.profile != done.profile)
        self.run = replace(self.run, untold=untold)
        self.put(done)

    def after_earlier(self, done: ProfileRun) -> ProfileRun:
        """An attempt merged with an earlier one of this run, or of a killed one."""
        untold = (each for each in self.run.untold if each.profile == done.profile)
        first = self.find(done.profile) or next(untold, None)
        return merged(first, done) if first else done

    def put(self, done: ProfileRun) -> None:
        known = {profile.profile: profile for profile in self.run.profiles}
        known[done.profile] = done
        self.run = replace(self.run, profiles=tuple(known.values()), begun=None)
        self.save()

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Record the remaining profiles as failed: they were not processed."""
        done = {profile.profile for profile in self.run.profiles}
        left = [
            with_channels(
                ProfileRun(profile, Ending.FAILED, NightlyStage.LOCK, fault=fault_of(error)),
                self._tree,
            )
            for profile in self.run.planned
            if profile not in done
        ]
        self.run = replace(self.run, profiles=(*self.run.profiles, *left))
        self.warn("the run was interrupted")

    def finish(self, told: TellRun = notify_nobody) -> None:
        """Save the result.

        If we are killed before `told` has written down what it sends, the run is not finished, and
        the next one tells of it.
        """
        for text in (text for done in self.run.untold for text in render_untold(done)):
            self.warn(text)
        self.save()
        self.run = replace(self.run, finished=True)
        told(self.run, after_kill=self.after_kill)
        self.save()


def run_stages(record: RunRecord, nightly: Nightly) -> None:
    settings, options = nightly.settings, nightly.options
    before = find_latest(options.folder)
    if killed := find_killed(options.folder, before, nightly.id):
        record.resume(killed, settings)
    record.save()
    with guarded(record, "could not remove what killed commands left"):
        sweep_leftovers(settings, nightly.tree)
    left = [profile for profile in options.profiles if process(profile, record, nightly)]
    for text in clock_warnings(
        time(),
        lock=newest_epoch(settings),
        run=datetime.fromisoformat(before.started).timestamp() if before else 0,
        release=nightly.upstream.newest,
    ):
        record.warn(text)
    if killed or any(p.ending is not Ending.UNCHANGED for p in record.run.profiles):
        prune_after(record, nightly)
    for seconds in find_waits(options.patience):
        if not left:
            break
        nightly.ui.note(f"retrying {', '.join(left)} in {format_duration(seconds)}")
        nightly.wait(seconds)
        nightly = replace(nightly, upstream=replace(nightly.upstream, said={}))
        left = [profile for profile in left if process(profile, record, nightly)]
        prune_after(record, nightly)
    if options.commit:
        with guarded(record, "could not commit the locks"):
            good = [p for p in record.run.profiles if not p.failed]
            commit = commit_locks(settings.locks, good) if good else ""
            record.run = replace(record.run, committed=commit)
    if options.rollout:
        for profile in options.profiles:
            roll_out_within(profile, record, nightly)


def prune_after(record: RunRecord, nightly: Nightly) -> None:
    """Remove old images and releases after all profiles were processed."""
    options = nightly.options
    with guarded(record, "could not remove old images"):
        refused = sorted((options.folder / RUNS_FOLDER).glob(f"{nightly.id}.*.lock"))
        gone = prune(nightly.settings, nightly.tree, nightly.ui, keep=options.keep, refused=refused)
        before = record.run.pruned
        pruned = Pruned(
            (*before.images, *gone.images),
            (*before.releases, *gone.releases),
            before.freed + gone.freed,
        )
        record.run = replace(record.run, pruned=pruned)


@contextlib.contextmanager
def guarded(record: RunRecord, what: str) -> Iterator[None]:
    """Turn an error in here into a warning: the run has done its work."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  as in process()
        record.warn(f"{what}: {in_a_line(fault_of(error))}")


def process(profile: str, record: RunRecord, nightly: Nightly) -> bool:
    """Process one profile; returns whether another attempt later in the run may get further.

    Every error is recorded.  Passes on KeyboardInterrupt, which is recorded too.
    """
    attempt = Attempt(profile, nightly.ui, record.begin)
    attempt.known = replace(attempt.known, previous=find_version(nightly.tree, profile, CANDIDATE))
    nightly.ui.note(f"{profile}:")
    work_on(attempt, nightly, run_profile, record.add)
    return attempt.retry


def roll_out_within(profile: str, record: RunRecord, nightly: Nightly) -> None:
    """Roll out one profile; errors are handled as in process()."""
    attempt = Attempt(profile, nightly.ui, record.put)
    if known := record.find(profile):
        attempt.known = known
        work_on(attempt, nightly, roll_out, record.put)


def work_on(
    attempt: Attempt,
    nightly: Nightly,
    work: Callable[[Attempt, Nightly], None],
    keep: Callable[[ProfileRun], None],
) -> None:
    """Work on a profile, and record the result or the error."""
    profile, tree = attempt.profile, nightly.tree
    try:
        work(attempt, nightly)
    except TROUBLES as error:
        nightly.ui.warn(f"{profile} failed in stage {attempt.known.stage}: {error}")
        attempt.fail(error, write_log(nightly, profile, str(error)))
    except KeyboardInterrupt as error:
        attempt.fail(error, "")
        keep(with_channels(attempt.known, tree))
        raise
    except Exception as error:  # noqa: BLE001  a bug of ours must not cost the other profiles
        nightly.ui.warn(f"{profile}: {fault_of(error)}")
        attempt.fail(error, write_log(nightly, profile, traceback.format_exc()))
    keep(with_channels(attempt.known, tree))


def with_channels(known: ProfileRun, tree: Tree) -> ProfileRun:
    """Add where its channels point now."""
    return replace(
        known,
        candidate=find_version(tree, known.profile, CANDIDATE),
        stable=find_version(tree, known.profile, STABLE),
    )


def write_log(nightly: Nightly, profile: str, text: str) -> str:
    """Add the details of a failure to those of earlier attempts.

    Returns the file, or "" if it cannot be written.
    """
    path = nightly.beside(profile, "log")
    try:
        with os.fdopen(open_plain(path, APPEND), "a") as log:
            log.write(f"{text}\n")
    except OSError:
        return ""
    return os.fspath(path)


def find_archives(settings: Settings, record: RunRecord) -> Mapping[str, str]:
    """The mirrors of this host; none if the site file is invalid, which each recipe reports too."""
    try:
        return mirrors_of(settings)
    except ImagebuilderError as error:
        record.warn(in_a_line(fault_of(error)))
        return {}


def boot_test(overlays: Mapping[str, Path]) -> Boot:
    """The boot test of `imagebuilder test`, with the checks of these overlays."""

    def boot(tree: Tree, release: ReleaseName, ui: Ui) -> Report:
        from imagebuilder.boot.gate import GateOptions, try_release  # slow to import

        return try_release(tree, str(release), overlays, GateOptions(), ui)

    return boot


def newest_epoch(settings: Settings) -> int:
    """The newest epoch of the readable lock files, 0 without one."""
    newest = 0
    for path in settings.locks.glob("*.lock"):
        with contextlib.suppress(InputError):
            newest = max(newest, load_lock(path).epoch)
    return newest
