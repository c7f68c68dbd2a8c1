# SPDX-License-Identifier: Apache-2.0
"""Who holds a lock, and who only asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from imagebuilder.locks import file_lock, is_listed, is_locked, take_lock
from imagebuilder.publish.removal import drop_unfinished
from imagebuilder.report.save import begin_report
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.web.action_journal import action_log
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import add_token, remove_token

RELEASE = ReleaseName("demo", "20261123000000-aaaaaaaa")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.touch()
    return path


def test_who_asks_is_not_taken_for_the_holder(lock: Path) -> None:
    asking = os.open(lock, os.O_RDONLY)
    try:
        assert take_lock(asking, shared=True)  # as is_locked() does for an instant
        assert not is_locked(lock)
    finally:
        os.close(asking)


@pytest.mark.parametrize(("shared", "found"), [(False, (True, True)), (True, (False, True))])
def test_who_shares_a_lock_is_found_if_asked_for(
    lock: Path, *, shared: bool, found: tuple[bool, bool]
) -> None:
    with file_lock(lock, shared=shared):
        assert (is_locked(lock), is_locked(lock, shared=True)) == found
    assert not is_locked(lock, shared=True)


def test_a_lock_that_nobody_made_is_free(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_locked(tmp_path / "pipe")


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_nobody_else_may_open_a_lock(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "lock"
    path.touch()
    path.chmod(mode)  # as earlier versions made it
    for each in (path, tmp_path / "new"):
        with file_lock(each):
            assert each.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("shared", "found"), [(False, (True, True)), (True, (False, True))])
def test_who_may_not_open_a_lock_is_told_the_same(
    lock: Path, *, shared: bool, found: tuple[bool, bool]
) -> None:
    with file_lock(lock, shared=shared):
        assert (is_listed(lock, shared=False), is_listed(lock, shared=True)) == found
        assert not is_listed(lock.parent, shared=True)
    assert not is_listed(lock, shared=True)


def change_tokens(tree: Tree) -> None:
    add_token(tree.path / "tokens.json", "ada", Role.ADMIN)
    remove_token(tree.path / "tokens.json", "ada")


def begin_one(tree: Tree) -> None:
    with begin_report(tree, RELEASE, "new"):
        pass


def log_action(tree: Tree) -> None:
    with action_log(tree, "20261123T000000-aaaaaaaa"):
        pass


@pytest.mark.parametrize("work", [change_tokens, begin_one, drop_unfinished, log_action])
def test_others_can_keep_nobody_waiting(tmp_path: Path, work: Callable[[Tree], None]) -> None:
    """Everybody may open and lock what everybody may read: no command waits for such a lock."""
    tree = make_tree(tmp_path / "tree")
    tree.reports(RELEASE).mkdir(parents=True)
    places = [path for path in (tree.path, *tree.path.rglob("*")) if path.stat().st_mode & 0o004]
    held = [os.open(path, os.O_RDONLY) for path in places]
    try:
        assert all(map(take_lock, held))
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work, tree)
            try:
                done.result(10)
            finally:
                while held:
                    os.close(held.pop())
    finally:
        for each in held:
            os.close(each)
