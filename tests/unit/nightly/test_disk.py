# SPDX-License-Identifier: Apache-2.0
"""A report folder that is full or cannot be written: what ends, and what only is a warning."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from imagebuilder import files
from imagebuilder.lock.file import load_lock, make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.choose import LockChoice
from imagebuilder.nightly.context import Attempt, Nightly
from imagebuilder.nightly.profile import accept, refuse
from imagebuilder.nightly.run import RunRecord, boot_test, write_log
from imagebuilder.nightly.space import find_readable
from imagebuilder.nightly.types import NightlyOptions
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.settings import Settings
from imagebuilder.tree import make_tree
from imagebuilder.ui import Ui
from tests.unit.nightly.samples import night, unchanged

ID = "20261122T023000Z-1"


@pytest.fixture
def nightly(tmp_path: Path) -> Nightly:
    """A run of the profile `tested` with its report in `report`, a folder to be made."""
    settings = Settings(tmp_path, tmp_path / "state", tmp_path / "cache", tmp_path / "site.yaml")
    options = NightlyOptions(("tested",), tmp_path / "report")
    ui = Ui(io.StringIO())
    return Nightly(
        options, settings, make_tree(tmp_path / "tree"), ui, boot_test({}),
        Upstream({}, settings.cache, ui), ID, lambda _: None,
    )  # fmt: skip


def test_a_lock_that_passed_is_accepted_whatever_the_report_folder_is(
    nightly: Nightly, first_lock: Lock
) -> None:
    nightly.options.folder.write_text("no folder")
    attempt = Attempt("tested", nightly.ui)
    accept(attempt, nightly, first_lock, LockChoice(first_lock, None, None))
    assert load_lock(nightly.settings.lock_file("tested")) == first_lock


def test_a_refused_lock_is_kept_whole_or_not_at_all(
    nightly: Nightly, first_lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = nightly.beside("tested", "lock")
    place.parent.mkdir(parents=True)
    attempt = Attempt("tested", nightly.ui)
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_all", full)
        refuse(attempt, nightly, first_lock)
    assert list(place.parent.iterdir()) == []
    assert "could not keep the refused lock" in attempt.known.warnings[0]
    refuse(attempt, nightly, first_lock)
    assert load_lock(place) == first_lock


def test_the_log_has_every_attempt(nightly: Nightly) -> None:
    assert write_log(nightly, "tested", "mirror is not reachable") == ""
    place = nightly.beside("tested", "log")
    place.parent.mkdir(parents=True)
    for text in ("mirror is not reachable", "script failed"):
        assert write_log(nightly, "tested", text) == os.fspath(place)
    assert place.read_text() == "mirror is not reachable\nscript failed\n"


def test_a_damaged_refused_lock_does_not_keep_old_images(tmp_path: Path, first_lock: Lock) -> None:
    whole, empty, said = tmp_path / "a.lock", tmp_path / "b.lock", io.StringIO()
    make_lock_file(first_lock, whole)
    empty.write_text("")
    assert find_readable([empty, whole], Ui(said)) == [whole]
    assert "ignoring a refused lock" in said.getvalue()


def test_a_report_that_cannot_be_saved_is_a_warning_of_the_run(nightly: Nightly) -> None:
    nightly.options.folder.write_text("no folder")
    record = RunRecord(night(unchanged()), nightly.options.folder, nightly.tree, nightly.ui)
    record.finish()
    (said,) = record.run.warnings
    assert said.startswith("could not save the report: ")
