# SPDX-License-Identifier: Apache-2.0
"""Root: symlinks lead where they lead inside the tree, whatever they point at outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder import root as rooted
from imagebuilder.root import FinishedRoot, Root


@pytest.fixture(params=[Root, FinishedRoot])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Root:
    tree = tmp_path / "tree"
    for folder in ("usr/lib", "etc", "opt/a"):
        (tree / folder).mkdir(parents=True)
    (tree / "usr/lib/libx.so.1.2").write_bytes(b"x")
    (tree / "usr/lib/libx.so.1").symlink_to("libx.so.1.2")
    (tree / "lib").symlink_to("usr/lib")
    (tree / "etc/outside").symlink_to("/etc/passwd")
    (tree / "etc/climbs").symlink_to("../../../../../../etc/passwd")
    (tree / "etc/circle").symlink_to("circle")
    (tree / "etc/absolute").symlink_to("/usr/lib/libx.so.1")
    (tree / "opt/a/.hidden").write_text("")
    made: Root = request.param(tree)
    return made


@pytest.mark.parametrize(
    ("name", "leads_to"),
    [
        ("/lib/libx.so.1", "/usr/lib/libx.so.1.2"),
        ("/etc/absolute", "/usr/lib/libx.so.1.2"),
        ("/etc/../lib", "/usr/lib"),
        ("/", "/"),
        ("/..", "/"),
        ("/etc/outside", None),
        ("/etc/climbs", None),
        ("/etc/circle", None),
        ("/usr/lib/libx.so.1.2/x", None),
    ],
)
def test_symlinks_stay_inside(root: Root, name: str, leads_to: str | None) -> None:
    assert root.resolve(name) == leads_to


def test_what_the_host_has_is_never_read(root: Root) -> None:
    assert Path("/etc/passwd").exists()
    assert root.read("/etc/outside") is None
    assert root.text("/etc/climbs") == ""


def test_globs_go_through_links_and_find_dangling_ones(root: Root) -> None:
    assert root.glob("/lib/libx.so.*") == ["/lib/libx.so.1", "/lib/libx.so.1.2"]
    assert root.glob("/etc/outside") == ["/etc/outside"]
    assert root.glob("/opt/*/*") == []
    assert root.glob("/nothing/*") == []


def test_walking_does_not_follow(root: Root) -> None:
    assert sorted(root.walk("/")) == ["/opt/a/.hidden", "/usr/lib/libx.so.1.2"]
    assert list(root.walk("/etc")) == []


def test_a_finished_root_is_looked_at_once(root: Root) -> None:
    assert root.resolve("/lib/libx.so.1") == "/usr/lib/libx.so.1.2"
    assert root.resolve("/lib/missing") is None
    (root.path / "lib").unlink()
    (root.path / "usr/lib/missing").touch()
    finished = isinstance(root, FinishedRoot)
    assert root.resolve("/lib/libx.so.1") == ("/usr/lib/libx.so.1.2" if finished else None)
    assert root.resolve("/lib/missing") is None
    assert root.resolve("/usr/lib/missing") == (None if finished else "/usr/lib/missing")
    assert FinishedRoot(root.path).resolve("/usr/lib/missing") == "/usr/lib/missing"


def test_no_more_than_so_many_paths_are_kept(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooted, "MOST_REMEMBERED", 3)
    found = FinishedRoot(root.path)
    for _ in range(2):
        assert found.resolve("/lib/libx.so.1") == "/usr/lib/libx.so.1.2"
        assert not any(found.resolve(f"/opt/a/{number}") for number in range(9))
    assert len(found.links) == len(found.ends) == 3
