# SPDX-License-Identifier: Apache-2.0
"""What a person took back from `stable` stays back; what nights moved may move again."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.nightly.profile import find_hold
from imagebuilder.publish.journal import PROMOTE, ROLLBACK, SET, Event, append
from imagebuilder.tree import STABLE, ReleaseName, make_tree

UP = [(PROMOTE, "1"), (PROMOTE, "2")]


@pytest.mark.parametrize(
    ("moves", "held"),
    [
        (UP, False),  # it is stable
        ([(PROMOTE, "1")], False),  # it never was
        ([*UP, (ROLLBACK, "1")], True),
        ([*UP, (SET, "1")], True),
        ([*UP, (PROMOTE, "1")], False),  # the recipe went back and forth
        ([*UP, (ROLLBACK, "1"), (PROMOTE, "2")], False),  # and forward again
        ([*UP, (ROLLBACK, "1"), (PROMOTE, "2"), (PROMOTE, "3")], False),
        ([*UP, (PROMOTE, "3"), (ROLLBACK, "2"), (ROLLBACK, "1")], True),
    ],
)
def test_holds(tmp_path: Path, moves: list[tuple[str, str]], held: bool) -> None:  # noqa: FBT001
    tree = make_tree(tmp_path)
    link = tree.channel("rx", STABLE)
    link.parent.mkdir()
    before = ""
    for event, version in moves:
        append(tree, Event(event, "rx", version, STABLE, before))
        link.unlink(missing_ok=True)
        tree.release(ReleaseName("rx", version)).mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../http/releases/rx/{version}")
        before = version
    said = find_hold(tree, ReleaseName("rx", "2"))
    assert bool(said) is held
    if held:
        assert "stable stays 1" in said
        assert "imagebuilder promote rx@2" in said
