# SPDX-License-Identifier: Apache-2.0
"""What a killed run did is in the message of the next one."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from imagebuilder.lock.changes import PackageChange, join_changes
from imagebuilder.lock.file import make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.choose import LockChoice, digest_of_lock
from imagebuilder.nightly.commit import render_message as render_commit
from imagebuilder.nightly.context import Attempt, Nightly
from imagebuilder.nightly.exclusive import find_killed, find_untold
from imagebuilder.nightly.faults import merged
from imagebuilder.nightly.history import find_latest
from imagebuilder.nightly.message import render_message
from imagebuilder.nightly.profile import accept, promote_release, publish_image
from imagebuilder.nightly.run import RunRecord, boot_test
from imagebuilder.nightly.types import Ending, NightlyOptions, NightlyRun, NightlyStage, ProfileRun
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.nodes.references import find_version
from imagebuilder.settings import Settings
from imagebuilder.tree import CANDIDATE, STABLE, make_tree
from imagebuilder.ui import Ui
from tests.unit.drift.world import make_world
from tests.unit.nightly.samples import FIRST, failed, night, unchanged
from tests.unit.planted_reports import make_report, plant

OPENSSL = PackageChange("openssl", "3.5.1-1", "3.5.1-2", security=True, suite="trixie-security")
LESS = PackageChange("less", "668-1", "669-1")
OLD, NEW = "20261101023000-aaaaaaaa", "20261122023000-bbbbbbbb"
DONE = replace(unchanged("tested", NEW), previous=NEW)  # what a run finds that has nothing to do


@pytest.fixture
def nightly(tmp_path: Path) -> Nightly:
    settings = Settings(tmp_path, tmp_path / "state", tmp_path / "cache", tmp_path / "site.yaml")
    ui = Ui(io.StringIO())
    return Nightly(
        NightlyOptions(("tested",), tmp_path / "report"), settings, make_tree(tmp_path / "tree"),
        ui, boot_test({}), Upstream({}, settings.cache, ui), night().id, lambda _: None,
    )  # fmt: skip


def begin(nightly: Nightly, number: int) -> RunRecord:
    """The record of the run of another day, which takes over what the one before left."""
    run = replace(night(started=FIRST + number * timedelta(days=1)), finished=False)
    run = replace(run, planned=("tested",))
    record = RunRecord(run, nightly.options.folder, nightly.tree, nightly.ui)
    killed = find_killed(nightly.options.folder, find_latest(nightly.options.folder), run.id)
    if killed:
        record.resume(killed, nightly.settings)
    record.save()
    return record


def finish(record: RunRecord) -> tuple[NightlyRun, str]:
    """The run that people are told of, and their mail."""
    told: list[NightlyRun] = []
    record.finish(lambda run, *, after_kill: told.append(run) if after_kill else None)
    (run,) = told
    return run, render_message(run, Path("/page"))


def attempt_in(record: RunRecord, nightly: Nightly, *changes: PackageChange) -> Attempt:
    """A profile whose new image passed; its lock is about to be accepted."""
    attempt = Attempt("tested", nightly.ui, record.begin)
    attempt.known = replace(
        attempt.known, stage=NightlyStage.TEST, version=NEW, previous=OLD, changes=changes
    )
    return attempt


def test_a_lock_that_a_killed_run_wrote_is_told(nightly: Nightly, first_lock: Lock) -> None:
    killed = begin(nightly, 1)
    attempt = attempt_in(killed, nightly, OPENSSL, LESS)
    accept(attempt, nightly, first_lock, LockChoice(first_lock, None, None))
    # Killed here, and the next one too.
    begin(nightly, 2)
    record = begin(nightly, 3)
    record.add(DONE)
    run, mail = finish(record)
    (done,) = run.profiles
    assert (done.ending, done.previous, done.version) == (Ending.PROMOTED, OLD, NEW)
    assert done.changes == (OPENSSL, LESS)
    assert f"tested: promoted, {NEW}, 2 packages changed" in mail
    assert "openssl 3.5.1-1 -> 3.5.1-2 (trixie-security)" in mail
    assert f"tested@{NEW}: run {killed.run.id} was killed in stage test" in mail
    assert "(1 security)" in render_commit(run.profiles)
    # What was told is not told again.
    again = begin(nightly, 4)
    assert (again.after_kill, again.run.untold) == (False, ())


def test_changes_of_a_lock_that_was_not_written_are_found_again(
    nightly: Nightly, first_lock: Lock
) -> None:
    path = nightly.settings.lock_file("tested")
    make_lock_file(first_lock, path)
    new = replace(first_lock, epoch=first_lock.epoch + 1)
    attempt = attempt_in(begin(nightly, 1), nightly, OPENSSL)
    accept(attempt, nightly, new, LockChoice(new, first_lock, first_lock))
    make_lock_file(first_lock, path)  # as if it had been killed before
    record = begin(nightly, 2)
    assert [done.changes for done in record.run.untold] == [()]
    later = replace(DONE, ending=Ending.PROMOTED, changes=(LESS,), lock="another")
    record.add(later)
    assert finish(record)[0].profiles[0].changes == (LESS,)


def test_changes_of_a_killed_run_and_of_the_next_add_up(nightly: Nightly, first_lock: Lock) -> None:
    attempt = attempt_in(begin(nightly, 1), nightly, OPENSSL)
    accept(attempt, nightly, first_lock, LockChoice(first_lock, None, None))
    record = begin(nightly, 2)
    new = replace(first_lock, epoch=first_lock.epoch + 1)
    later = attempt_in(record, nightly, replace(OPENSSL, old="3.5.1-2", new="3.5.1-3"), LESS)
    # Killed again, before and after the lock was written.
    later.known = replace(later.known, lock=digest_of_lock(new))
    later.save()
    assert [done.changes for done in find_untold(record.run, nightly.settings)] == [(OPENSSL,)]
    accept(later, nightly, new, LockChoice(new, first_lock, first_lock))
    record = begin(nightly, 3)
    record.add(DONE)
    run, _ = finish(record)
    assert run.profiles[0].changes == (replace(OPENSSL, new="3.5.1-3"), LESS)
    assert run.profiles[0].previous == OLD


def test_what_later_runs_do_not_process_is_told_too(nightly: Nightly) -> None:
    killed = begin(nightly, 1)
    killed.add(replace(DONE, ending=Ending.FRESH, published=7_000_000))
    killed.add(failed("web", NightlyStage.BUILD, stable=OLD))
    killed.add(unchanged("quiet"))
    record = begin(nightly, 2)
    record.add(unchanged("other"))
    run, mail = finish(record)
    assert [done.profile for done in run.profiles] == ["other"]
    assert f"warning: a killed run did this: tested: fresh, {NEW}, 7.0 MB published" in mail
    assert "warning: a killed run did this: web: FAILED at build" in mail
    assert "quiet" not in mail


@pytest.mark.root
def test_progress_is_saved_before_the_tree_changes(nightly: Nightly, tmp_path: Path) -> None:
    world = make_world(tmp_path / "world")
    image = world.build()
    promoting = replace(nightly.options, promote=True)
    nightly = replace(nightly, tree=world.tree, options=promoting)
    saved: list[tuple[NightlyStage, str, str]] = []

    def save(known: ProfileRun) -> None:
        candidate, stable = (find_version(world.tree, "demo", c) for c in (CANDIDATE, STABLE))
        saved.append((known.stage, candidate, stable))

    attempt = Attempt("demo", nightly.ui, save)
    publish_image(attempt, nightly, world.store, image.release)
    plant(world.tree, make_report(world.tree, image.name, 1))
    promote_release(attempt, nightly, image.release)
    assert saved == [(NightlyStage.PUBLISH, "", ""), (NightlyStage.PROMOTE, image.version, "")]
    assert find_version(world.tree, "demo", STABLE) == image.version


def test_a_release_that_the_next_run_replaces_is_told(nightly: Nightly) -> None:
    killed = begin(nightly, 1)
    attempt = attempt_in(killed, nightly, LESS)
    attempt.known = replace(attempt.known, stage=NightlyStage.PUBLISH)
    attempt.save()
    record = begin(nightly, 2)
    newer = replace(DONE, ending=Ending.PROMOTED, version="3", stable="3", changes=(OPENSSL,))
    record.add(newer)
    run, mail = finish(record)
    assert (run.profiles[0].previous, run.profiles[0].changes) == (OLD, (OPENSSL,))
    assert f"tested@{NEW}: run {killed.run.id} was killed in stage publish" in mail


def test_what_a_killed_run_promoted_is_promoted() -> None:
    begun = ProfileRun(
        "tested", Ending.FAILED, NightlyStage.PROMOTE, version=NEW, previous=OLD, stable=OLD
    )
    done = replace(DONE, stable=NEW)
    assert merged(begun, done).ending is Ending.PROMOTED
    assert merged(begun, replace(done, stable=OLD)).ending is Ending.FRESH
    assert merged(replace(begun, ending=Ending.FRESH), done).ending is Ending.PROMOTED
    other = replace(done, version=OLD, stable=OLD)
    assert merged(begun, other).ending is Ending.UNCHANGED


def test_changes_are_joined_by_package() -> None:
    back = PackageChange("less", "669-1", "668-1")
    added = PackageChange("zlib1g", "", "1.3")
    gone = PackageChange("zlib1g", "1.3", "")
    assert join_changes((OPENSSL, LESS), ()) == (OPENSSL, LESS)
    assert join_changes((LESS, added), (back, gone, OPENSSL)) == (OPENSSL,)
    assert join_changes((gone,), (added,)) == ()
    newer = PackageChange("openssl", "3.5.1-2", "3.5.1-3")
    assert join_changes((OPENSSL,), (newer,)) == (replace(OPENSSL, new="3.5.1-3"),)
