# SPDX-License-Identifier: Apache-2.0
"""What killed commands left in a tree beside releases that stay."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from imagebuilder.locks import file_lock
from imagebuilder.publish.find import changing
from imagebuilder.publish.removal import Caution, collect_releases
from imagebuilder.publish.space import RESERVE
from imagebuilder.report.save import begin_report
from imagebuilder.tree import ReleaseName, make_tree
from imagebuilder.ui import Ui


def test_gc_removes_what_killed_commands_left_and_nothing_else(tmp_path: Path) -> None:
    tree, release = make_tree(tmp_path), ReleaseName("demo", "1")
    reports, record = tree.reports(release), tree.verified(release)
    tree.release(release).mkdir(parents=True)
    dead = [reports / ".new-a", record.with_name(".1.json.new")]
    alive = record.with_name(".2.json.new")
    for path in (dead[0], record.parent):
        path.mkdir(parents=True)
    for path in (record, dead[1]):
        path.write_text("{}")
    with begin_report(tree, release, "b") as staged:
        dead[0].mkdir(exist_ok=True)
        with file_lock(alive):
            collect_releases(tree, Ui(io.StringIO()), Caution(), keep=1, dry_run=False)
        assert all(path.exists() for path in (staged, alive, record))
    assert not any(path.exists() for path in dead)


def test_a_full_disk_has_space_for_removing_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, seen = make_tree(tmp_path), list[bool]()
    with changing(tree, Ui(io.StringIO())):
        pass
    assert tree.reserve.stat().st_blocks * 512 >= RESERVE
    with changing(tree, Ui(io.StringIO()), removing=True):
        seen.append(tree.reserve.exists())
    assert seen == [False]
    assert tree.reserve.stat().st_size == RESERVE

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with changing(tree, Ui(io.StringIO()), removing=True):
        pass
