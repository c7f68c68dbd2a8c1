# SPDX-License-Identifier: Apache-2.0
"""Who holds a lock, and who only asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.locks import file_lock, is_locked, take_lock


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
