# SPDX-License-Identifier: Apache-2.0
"""The lock a night goes on with: when apt is asked, and what holds when the archive is away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.lock.changes import PackageChange
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.choose import memo_file, read_memo, write_memo
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui
from tests.fixtures.aptrepo import Deb, Plant
from tests.unit.nightly.conftest import DATE, Project

pytestmark = pytest.mark.slow

NEWER = Deb("libhello", "1.1")


def test_the_first_lock_is_new_and_no_file_is_written(project: Project) -> None:
    """A broken lock of another profile is none of ours."""
    project.settings.lock_file("other").write_text("{")
    chosen = project.choose()
    assert chosen.new
    assert chosen.file is None
    assert chosen.changes == ()
    assert not project.settings.lock_file("tested").exists()


def test_the_same_release_files_are_not_solved_again(locked: Project) -> None:
    locked.server.asked.clear()
    chosen = locked.choose()
    assert not chosen.new
    assert not locked.solved
    assert not any("Packages" in path for path in locked.server.asked)


def test_an_archive_that_changed_elsewhere_is_solved_once(locked: Project) -> None:
    """The lock file stays as it is, and the next night need not solve either."""
    locked.publish(Deb("idle", "2.0"), date=DATE + 60)
    chosen = locked.choose()
    assert locked.solved
    assert not chosen.new
    assert chosen.changes == ()
    locked.choose()
    assert not locked.solved


@pytest.mark.parametrize("damage", ["", "[]", '{"lock": "other"}'])
def test_a_damaged_memo_says_nothing(tmp_path: Path, damage: str) -> None:
    settings = Settings(tmp_path, tmp_path / "state", tmp_path / "cache", tmp_path / "site.yaml")
    lock = Lock("tested", "amd64", "test", 1, (), ())
    write_memo(settings, lock, {"test main": "ab"})
    assert read_memo(settings, lock) == {"test main": "ab"}
    assert read_memo(settings, replace(lock, epoch=2)) is None
    memo_file(settings, "tested").write_text(damage)
    assert read_memo(settings, lock) is None


def test_a_new_package_makes_a_new_lock(locked: Project) -> None:
    locked.publish(NEWER, date=DATE + 60)
    chosen = locked.choose()
    assert chosen.new
    assert chosen.fallback == chosen.file
    assert chosen.changes == (PackageChange("libhello", "1.0", "1.1"),)


def test_a_package_of_the_security_suite_is_marked(locked: Project) -> None:
    """The lock names a source of two suites; only the lists of apt tell which of them has it."""
    locked.publish(Deb("hello", "1.5", depends="libhello"), security=(NEWER,), date=DATE + 60)
    assert locked.choose().changes == (
        PackageChange("libhello", "1.0", "1.1", security=True, suite="test-security"),
        PackageChange("hello", "1.0", "1.5"),
    )


def test_a_changed_recipe_is_solved_though_the_archive_is_the_same(locked: Project) -> None:
    chosen = locked.choose(locked.more())
    assert chosen.fallback is None
    assert chosen.changes == (PackageChange("idle", "", "1.0"),)


def test_without_the_archive_the_lock_there_is_goes_on(locked: Project) -> None:
    locked.publish(NEWER, date=DATE + 60)
    locked.server.everywhere = Plant.UNAVAILABLE
    chosen = locked.choose()
    assert not chosen.new
    assert isinstance(chosen.error, ImagebuilderError)


def test_an_archive_that_lists_what_it_does_not_serve_is_away_too(locked: Project) -> None:
    locked.publish(NEWER, date=DATE + 60)
    for suffix in ("", ".gz", ".xz"):
        locked.server.plant(f"dists/test/main/binary-amd64/Packages{suffix}", Plant.GARBLED)
    chosen = locked.choose()
    assert chosen.error is not None
    assert chosen.lock == chosen.file


def test_an_archive_past_its_end_is_away_too(locked: Project) -> None:
    locked.publish(NEWER, date=DATE + 60, valid_until=DATE + 120)
    chosen = locked.choose()
    assert isinstance(chosen.error, InputError)
    assert "expired" in str(chosen.error)


def test_an_archive_that_goes_back_keeps_the_lock(locked: Project) -> None:
    """A replayed Release file, and a cache that has nothing to compare it with."""
    locked.publish(NEWER, date=DATE - 60)
    chosen = locked.choose()
    assert isinstance(chosen.error, WorkError)
    assert "--allow-older" in str(chosen.error)
    assert chosen.lock == chosen.file


def test_an_archive_of_another_suite_keeps_the_lock(locked: Project) -> None:
    says = {"Suite": "oldstable", "Codename": "bookworm"}
    locked.publish(NEWER, date=DATE + 60, says=says)
    chosen = locked.choose()
    assert isinstance(chosen.error, WorkError)
    assert "requested test, but its Release file says Suite: oldstable" in str(chosen.error)
    assert chosen.lock == chosen.file


def test_without_archive_and_lock_nothing_can_be_done(project: Project) -> None:
    project.server.everywhere = Plant.UNAVAILABLE
    with pytest.raises(HostError, match="not reachable"):
        project.choose()


def test_a_lock_that_is_not_the_recipes_is_no_fallback(locked: Project) -> None:
    locked.server.everywhere = Plant.UNAVAILABLE
    with pytest.raises(HostError, match="not reachable"):
        locked.choose(locked.more())


def test_a_source_is_asked_once_a_night(project: Project) -> None:
    """Also when it is away: nine profiles do not wait nine times."""
    upstream = Upstream({"test": project.server.uri}, project.settings.cache, Ui(project.said))
    upstream.sources(project.recipe)
    asked = len(project.server.asked)
    assert upstream.newest == DATE
    upstream.sources(project.recipe)
    assert len(project.server.asked) == asked
    project.server.everywhere = Plant.UNAVAILABLE
    away = Upstream({"test": project.server.uri}, project.settings.cache, Ui(project.said))
    for _ in range(2):
        with pytest.raises(HostError):
            away.sources(project.recipe)
    assert len(project.server.asked) - asked < 10


def test_a_broken_lock_of_its_own_is_said(project: Project) -> None:
    project.settings.lock_file("tested").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        project.choose()
