# SPDX-License-Identifier: Apache-2.0
"""A night: every profile from its lock to its channel, each by itself, and what came of it."""

from __future__ import annotations

import contextlib
import os
import platform
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep, time

from imagebuilder import __version__
from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.fleet.rollout.message import TellRollout, tell_nobody
from imagebuilder.lock.file import load_lock
from imagebuilder.nightly.clock import clock_warnings
from imagebuilder.nightly.commit import commit_locks
from imagebuilder.nightly.context import Attempt, Boot, Nightly
from imagebuilder.nightly.faults import TROUBLES, fault_of, in_a_line
from imagebuilder.nightly.history import NIGHTS
from imagebuilder.nightly.profile import run_profile
from imagebuilder.nightly.retry import find_waits, merged
from imagebuilder.nightly.rollout import roll_out
from imagebuilder.nightly.save import LATEST, save_night
from imagebuilder.nightly.sole import single_run, sweep_leftovers
from imagebuilder.nightly.space import prune
from imagebuilder.nightly.types import (
    NIGHTLY_RUN,
    Ending,
    NightlyOptions,
    NightlyRun,
    NightlyStage,
    ProfileRun,
    Pruned,
)
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.nodes.references import find_version
from imagebuilder.pipeline import mirrors_of
from imagebuilder.report.types import Report
from imagebuilder.rights import check_root
from imagebuilder.settings import Settings
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui, format_duration


def nobody(night: NightlyRun) -> None:
    """Who is told of a night where nobody is."""


def run_nightly(
    options: NightlyOptions,
    settings: Settings,
    tree: Tree,
    ui: Ui,
    *,
    boot: Boot | None = None,
    wait: Callable[[float], None] = sleep,
    told: Callable[[NightlyRun], None] = nobody,
    tell_rollout: TellRollout = tell_nobody,
) -> NightlyRun:
    """Every profile of `options` from its lock to its channel; the record is kept as it goes.

    `tree` is one that make_tree() made.  `boot` tests a release and saves its report (default: as
    imagebuilder test); `wait` waits so many seconds; `told` is called once, with the whole night,
    also where somebody interrupts it, `tell_rollout` for each status of a roll-out.  What happens
    to a profile is in the result.  Raises HostError when another night is under way or we are not
    root, and KeyboardInterrupt again.
    """
    check_root("a nightly run")
    started = datetime.now(UTC)
    id = f"{started:%Y%m%dT%H%M%SZ}-{os.getpid()}"  # noqa: A001
    with single_run(settings.state, f"night {id}"):
        night = NightlyRun(
            id=id,
            started=started.isoformat(timespec="seconds"),
            host=platform.node(),
            tool=__version__,
            planned=options.profiles,
        )
        record = RunRecord(night, options.folder, tree, ui)
        upstream = Upstream(find_archives(settings, record), settings.cache, ui)
        boot = boot or boot_test(settings.find_overlays())
        nightly = Nightly(options, settings, tree, ui, boot, upstream, id, wait, tell_rollout)
        try:
            spend(record, nightly)
        except KeyboardInterrupt as error:
            record.interrupt(error)
            raise
        finally:
            record.finish()
            told(record.night)
    return record.night


class RunRecord:
    """A night as it goes; what is known is on the disk, as far as the disk takes it."""

    def __init__(self, night: NightlyRun, folder: Path, tree: Tree, ui: Ui) -> None:
        self.night = night
        self._folder = folder
        self._tree = tree
        self._ui = ui
        self._clock = monotonic()

    def save(self) -> None:
        """Write it down.  A full disk costs the record, never the night."""
        seconds = round(monotonic() - self._clock, 3)
        self.night = replace(self.night, seconds=seconds)
        try:
            save_night(self.night, self._folder, self._tree)
        except TROUBLES as error:
            self._ui.warn(f"could not save the report: {in_a_line(fault_of(error))}")

    def warn(self, text: str) -> None:
        """Say what concerns no single profile, and write it down."""
        self._ui.warn(text)
        self.night = replace(self.night, warnings=(*self.night.warnings, text))

    def find(self, profile: str) -> ProfileRun | None:
        """What is known of a profile."""
        return next((each for each in self.night.profiles if each.profile == profile), None)

    def add(self, done: ProfileRun) -> None:
        """A profile is done, or was tried once more."""
        first = self.find(done.profile)
        self.put(merged(first, done) if first else done)

    def put(self, done: ProfileRun) -> None:
        """A profile has come further."""
        known = {profile.profile: profile for profile in self.night.profiles}
        known[done.profile] = done
        self.night = replace(self.night, profiles=tuple(known.values()))
        self.save()

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """What was to come has failed: nobody is to believe that it was looked at."""
        done = {profile.profile for profile in self.night.profiles}
        left = [
            with_channels(
                ProfileRun(profile, Ending.FAILED, NightlyStage.LOCK, fault=fault_of(error)),
                self._tree,
            )
            for profile in self.night.planned
            if profile not in done
        ]
        self.night = replace(self.night, profiles=(*self.night.profiles, *left))
        self.warn("the run was interrupted")

    def finish(self) -> None:
        self.night = replace(self.night, finished=True)
        self.save()


def spend(record: RunRecord, nightly: Nightly) -> None:
    """What a night consists of, in order."""
    settings, options = nightly.settings, nightly.options
    before = find_latest(options.folder)
    record.save()
    killed = before is not None and not before.finished
    if before and killed:
        record.warn(f"night {before.id} never finished: it was killed, or the power failed")
    with guarded(record, "could not remove what killed commands left"):
        sweep_leftovers(settings, nightly.tree)
    left = [profile for profile in options.profiles if spend_on(profile, record, nightly)]
    for text in clock_warnings(
        time(),
        lock=newest_epoch(settings),
        night=datetime.fromisoformat(before.started).timestamp() if before else 0,
        release=nightly.upstream.newest,
    ):
        record.warn(text)
    if killed or any(p.ending is not Ending.UNCHANGED for p in record.night.profiles):
        prune_after(record, nightly)
    for seconds in find_waits(options.patience):
        if not left:
            break
        nightly.ui.note(f"trying {', '.join(left)} again in {format_duration(seconds)}")
        nightly.wait(seconds)
        nightly = replace(nightly, upstream=replace(nightly.upstream, said={}))
        left = [profile for profile in left if spend_on(profile, record, nightly)]
        prune_after(record, nightly)
    if options.commit:
        with guarded(record, "could not commit the locks"):
            good = [p for p in record.night.profiles if not p.failed]
            commit = commit_locks(settings.locks, good) if good else ""
            record.night = replace(record.night, committed=commit)
    if options.rollout:
        for profile in options.profiles:
            roll_out_within(profile, record, nightly)


def prune_after(record: RunRecord, nightly: Nightly) -> None:
    """Remove what is old, once all profiles had their turn."""
    options = nightly.options
    with guarded(record, "nothing was removed"):
        refused = sorted((options.folder / NIGHTS).glob(f"{nightly.id}.*.lock"))
        gone = prune(nightly.settings, nightly.tree, nightly.ui, keep=options.keep, refused=refused)
        before = record.night.pruned
        pruned = Pruned(
            (*before.images, *gone.images),
            (*before.releases, *gone.releases),
            before.freed + gone.freed,
        )
        record.night = replace(record.night, pruned=pruned)


@contextlib.contextmanager
def guarded(record: RunRecord, what: str) -> Iterator[None]:
    """What goes wrong in here is a warning of the night, which has done its work."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  as in spend_on()
        record.warn(f"{what}: {in_a_line(fault_of(error))}")


def spend_on(profile: str, record: RunRecord, nightly: Nightly) -> bool:
    """One profile's turn; whether another one later in the night may bring it further.

    Whatever goes wrong is in the record.  Raises KeyboardInterrupt, which is in it too.
    """
    attempt = Attempt(profile, nightly.ui)
    attempt.known = replace(attempt.known, previous=find_version(nightly.tree, profile, CANDIDATE))
    nightly.ui.note(f"{profile}:")
    have_turn(attempt, nightly, run_profile, record.add)
    return attempt.again


def roll_out_within(profile: str, record: RunRecord, nightly: Nightly) -> None:
    """One profile's roll-out, as spend_on()."""
    attempt = Attempt(profile, nightly.ui)
    if known := record.find(profile):
        attempt.known = known
        have_turn(attempt, nightly, roll_out, record.put)


def have_turn(
    attempt: Attempt,
    nightly: Nightly,
    work: Callable[[Attempt, Nightly], None],
    keep: Callable[[ProfileRun], None],
) -> None:
    """Work on a profile, and keep what came of it, whatever that is."""
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
    """With where its channels lead now."""
    return replace(
        known,
        candidate=find_version(tree, known.profile, CANDIDATE),
        stable=find_version(tree, known.profile, STABLE),
    )


def write_log(nightly: Nightly, profile: str, text: str) -> str:
    """Keep all that is known of a failure; where, or "" where it cannot be."""
    path = nightly.beside(profile, "log")
    try:
        path.write_text(f"{text}\n")
    except OSError:
        return ""
    return os.fspath(path)


def find_archives(settings: Settings, record: RunRecord) -> Mapping[str, str]:
    """The archives this host reaches; none where the site file is not sound, as recipes say too."""
    try:
        return mirrors_of(settings)
    except ImagebuilderError as error:
        record.warn(in_a_line(fault_of(error)))
        return {}


def boot_test(overlays: Mapping[str, Path]) -> Boot:
    """The boot test as `imagebuilder test` makes it, with the checks of these overlays."""

    def boot(tree: Tree, release: ReleaseName, ui: Ui) -> Report:
        from imagebuilder.boot.gate import GateOptions, try_release  # slow to import

        return try_release(tree, str(release), overlays, GateOptions(), ui)

    return boot


def find_latest(folder: Path) -> NightlyRun | None:
    """The night that was saved last, whatever the clock was then; None where it cannot be read."""
    try:
        return NIGHTLY_RUN.load(folder / LATEST)
    except InputError:
        return None


def newest_epoch(settings: Settings) -> int:
    """The newest epoch of the lock files that can be read, 0 without one."""
    newest = 0
    for path in settings.locks.glob("*.lock"):
        with contextlib.suppress(InputError):
            newest = max(newest, load_lock(path).epoch)
    return newest
