# SPDX-License-Identifier: Apache-2.0
"""One night at a time, and what killed ones left."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.locks import file_lock
from imagebuilder.nightly.exclusive import single_run, sweep_leftovers
from imagebuilder.settings import Settings
from imagebuilder.tree import make_tree


def test_the_second_is_told_of_the_first(tmp_path: Path) -> None:
    second = single_run(tmp_path, "B")
    first = f"night A, process {os.getpid()}"
    with single_run(tmp_path, "night A"), pytest.raises(HostError, match=first):
        second.__enter__()
    with single_run(tmp_path, "B"):
        assert (tmp_path / "locks/nightly").read_text().startswith("B, process")


def test_on_a_full_disk_the_lock_counts_and_not_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", text)

    monkeypatch.setattr(Path, "write_text", full)
    second = single_run(tmp_path, "B")
    with single_run(tmp_path, "A"), pytest.raises(HostError, match="it has just begun"):
        second.__enter__()


def test_what_killed_commands_left_goes_and_nothing_else(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    settings = Settings(tmp_path, tmp_path / "state", tmp_path / "cache", tmp_path / "site.yaml")
    gone = [
        tmp_path / "state/work/generic-20261122T020000-1/u0",
        tree.path / "work/publish-generic-1/root",
    ]
    for folder in (*gone, settings.locks, tmp_path / "state/debs"):
        folder.mkdir(parents=True)
    dead, alive = settings.locks / ".a.lock.new", settings.locks / ".b.lock.new"
    kept = [settings.locks / "a.lock", tmp_path / "state/debs/ab.deb", alive]
    for path in (dead, *kept):
        path.write_text("")
    busy = tmp_path / "state/work/living/.owned"
    with file_lock(busy), file_lock(alive):
        sweep_leftovers(settings, tree)
    assert not any(path.exists() for path in (*gone, dead))
    assert all(path.exists() for path in (*kept, busy))
