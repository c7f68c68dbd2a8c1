# SPDX-License-Identifier: Apache-2.0
"""A case of the blind corpus that cannot be planted into a root is not passed over in silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from imagebuilder.image.proof import Finding, Level, Question
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.blind import test_blind
from tests.blind.case import Case
from tests.blind.conftest import UNPLANTED
from tests.blind.test_blind import UnplantedError, look
from tests.faults.conftest import Ground
from tests.faults.site import Site

OWN, OTHER = "made-amd", "made-intel"
CASE = Case("lost", OWN, (), "x", requires={"root/etc/none": "x"})


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """Empty roots, of which nothing is said."""
    tree = make_tree(tmp_path / "tree")
    names = {name: ReleaseName(name, "1") for name in (OWN, OTHER)}

    class Copies:
        @contextmanager
        def of(self, tree: Tree, release: ReleaseName, *, with_repo: bool) -> Iterator[Site]:
            del with_repo
            folder = tree.release(release)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "manifest.json").write_text('{"layers": [], "kernel": {"release": "1"}}')
            yield Site(tree, release)

    monkeypatch.setattr(test_blind, "find_all", lambda *_, **__: [])
    return cast(Ground, SimpleNamespace(tree=tree, releases=names, copies=Copies()))


def test_it_is_said_of_another_root(ground: Ground) -> None:
    told: list[tuple[str, object]] = []
    assert look(CASE, ground, OTHER, {}, lambda *each: told.append(each)) == []
    [(kind, text)] = told
    assert kind == UNPLANTED
    assert str(text).startswith("lost is not planted into made-intel: ")


def test_it_fails_in_its_own_root(ground: Ground) -> None:
    with pytest.raises(UnplantedError):
        look(CASE, ground, OWN, {}, lambda *_: None)


def test_what_a_good_root_says_does_not_depend_on_the_case(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first case that could not be planted made everything of that root count as found."""
    always = Finding(Level.FAULT, "as ever", question=Question.SYSTEM)
    monkeypatch.setattr(test_blind, "find_all", lambda *_, **__: [always])
    known: test_blind.Known = {}
    look(CASE, ground, OTHER, known, lambda *_: None)
    assert look(Case("next", OWN, (), "x"), ground, OTHER, known, lambda *_: None) == []
