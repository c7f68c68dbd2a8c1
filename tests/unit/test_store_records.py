# SPDX-License-Identifier: Apache-2.0
"""What a build that did not end has made stays for the next one, for a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from imagebuilder.store.records import UNFINISHED_DAYS, find_unfinished, unfinished


def test_a_build_that_fails_leaves_a_note_and_one_that_ends_takes_it_away(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), unfinished(tmp_path, "p", ["a", "b"]):
        raise RuntimeError
    assert find_unfinished(tmp_path) == {"a", "b"}
    with unfinished(tmp_path, "p", ["a", "c"]):
        assert find_unfinished(tmp_path) == {"a", "c"}
    assert find_unfinished(tmp_path) == set()


def test_the_end_of_another_build_of_the_profile_leaves_a_note_alone(tmp_path: Path) -> None:
    with unfinished(tmp_path, "p", ["a"]):
        (tmp_path / "unfinished/p.json").write_text('{"layers": ["b"]}')
    assert find_unfinished(tmp_path) == {"b"}


def test_old_and_damaged_notes_keep_nothing(tmp_path: Path) -> None:
    for profile in ("old", "cut", "odd"):
        with pytest.raises(RuntimeError), unfinished(tmp_path, profile, [profile]):
            raise RuntimeError
    notes = tmp_path / "unfinished"
    before = time.time() - (UNFINISHED_DAYS + 1) * 86_400
    os.utime(notes / "old.json", (before, before))
    (notes / "cut.json").write_text('{"layers": ["cu')
    (notes / "odd.json").write_text('{"layers": 7}')
    assert find_unfinished(tmp_path) == set()
