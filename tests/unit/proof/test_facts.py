# SPDX-License-Identifier: Apache-2.0
"""A fact about a file is read once; one that is known is not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.facts import FileFacts
from imagebuilder.root import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "real").mkdir()
    for name in ("a", "b"):
        (tmp_path / "real" / name).write_text(name)
    (tmp_path / "linked").symlink_to("real")
    return Root(tmp_path)


def test_what_is_known_is_not_read(root: Root) -> None:
    known = {"x": {path: "known" for path in ("/real/a", "/linked/a", "/gone")}}
    facts: FileFacts[str] = FileFacts(root, lambda: known)
    read: list[str] = []

    def of(path: str, asked: str) -> str:
        def see(path: str) -> str:
            read.append(path)
            return f"{asked} of {path}"

        return facts.of(path, see, asked)

    for _ in range(2):
        assert of("/real/a", "x") == "known"
        assert of("/real/a", "y") == "y of /real/a", "another question has another answer"
        assert of("/real/b", "x") == "x of /real/b"
        assert of("/linked/a", "x") == "x of /linked/a", "a link may lead elsewhere by now"
        assert of("/gone", "x") == "x of /gone"
    assert read == ["/real/a", "/real/b", "/linked/a", "/gone"]


def test_sound_facts_are_kept(root: Root) -> None:
    facts: FileFacts[str] = FileFacts(root)
    for path in ("/real/a", "/real/b", "/linked/a", "/gone"):
        facts.of(path, str.upper, "x")
    assert facts.kept(lambda fact: fact != "/REAL/B") == {"x": {"/real/a": "/REAL/A"}}
    assert FileFacts(root).kept(bool) == {}
