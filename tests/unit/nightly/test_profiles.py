# SPDX-License-Identifier: Apache-2.0
"""Choose the profiles of a nightly run."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.nightly.site import choose_profiles
from imagebuilder.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A project with two recipes and three locks, one of them of no profile any more."""
    for name in ("a.yaml", "b.yaml", "bases/tiny.yaml"):
        path = tmp_path / "recipes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "recipes/locks").mkdir()
    for name in ("a.lock", "a.tiny.lock", "gone.lock", ".a.lock.1-2"):
        (tmp_path / "recipes/locks" / name).write_text("")
    return Settings(tmp_path, tmp_path / "state", tmp_path / "cache", tmp_path / "site.yaml")


def test_without_names_it_is_every_recipe_and_every_lock(settings: Settings) -> None:
    chosen, left_out = choose_profiles((), settings)
    assert chosen == ("a", "b", "a.tiny")
    assert [fault.what for fault in left_out] == ["does not belong to any profile"]


def test_names_keep_their_order_and_count_once(settings: Settings) -> None:
    assert choose_profiles(("b", "a.mkosi", "b"), settings) == (("b", "a.mkosi"), ())


def test_every_name_that_means_nothing_is_said(settings: Settings) -> None:
    with pytest.raises(InputError) as caught:
        choose_profiles(("c", "a", "d"), settings)
    assert len(caught.value.faults) == 2
