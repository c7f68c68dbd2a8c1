# SPDX-License-Identifier: Apache-2.0
"""What is read of folders and mounts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder import folders
from imagebuilder.errors import WorkError
from imagebuilder.folders import folders_below, paths_below, read_mounts
from imagebuilder.process import run
from imagebuilder.recipe.project import digests_of_project
from imagebuilder.root import Root
from imagebuilder.slim.types import remove_empty
from imagebuilder.store.upper import remove, walk
from imagebuilder.store.workplace import remove_tree

ROW = b"33-22 1 0:25 / %s rw,relatime shared:1 - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b"/srv/fast\\040disk", b"/srv/fast disk"),
        ("/srv/größe".encode(), "/srv/größe".encode()),
        (b"/media/\xff\x85", b"/media/\xff\x85"),
    ],
)
def test_a_mount_has_any_name(written: bytes, name: bytes) -> None:
    assert list(read_mounts(ROW % written)) == [(os.fsdecode(name), "tmpfs")]


@pytest.mark.parametrize("name", ["größe", "a b", os.fsdecode(b"\xff")])
def test_nothing_is_removed_below_a_mount_with_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, table = tmp_path / "place", tmp_path / "mountinfo"
    (place / name).mkdir(parents=True)
    row = ROW % os.fsencode(place / name).replace(b" ", b"\\040")
    table.write_bytes(ROW % b"/media/\xff" + row)
    monkeypatch.setattr(folders, "MOUNTS", table)
    with pytest.raises(WorkError, match=re.escape("is mounted inside")):
        remove_tree(place)
    assert (place / name).is_dir()


LEVELS = 1500
LONG = "d" * 200


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder with more levels than Python has frames, which a program of an image makes easily.

    pytest itself could not remove it.
    """
    top = tmp_path / "top"
    here = top
    for _ in range(LEVELS):
        here.mkdir()
        here /= "d"
    here.mkdir()
    (here / "file").write_text("x")
    try:
        yield top
    finally:
        run(["rm", "-rf", "--", top])


def test_folders_of_any_depth_are_read_and_removed(deep: Path) -> None:
    assert sum(1 for _ in paths_below(deep)) == LEVELS + 1
    (name,) = digests_of_project(deep)
    assert name == "d/" * LEVELS + "file"
    (deep / name).unlink()
    remove_empty(Root(deep), "/d")
    assert list(deep.iterdir()) == []


def test_a_tree_of_any_depth_is_removed_and_no_link_followed(deep: Path) -> None:
    outside = deep.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (deep / "link").symlink_to(outside)
    remove(deep)
    assert not deep.exists()
    assert (outside / "file").exists()
    link = deep.parent / "link"
    link.symlink_to(outside)
    remove(link)
    remove(link)
    assert (outside / "file").exists()


def test_folders_are_walked_as_os_walk_does(tmp_path: Path) -> None:
    for name in ("a/x", "a/y/z", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/file").write_text("x")
    (tmp_path / "b/link").symlink_to("../a")
    (tmp_path / "b/loop").symlink_to("loop")
    found = {here: (set(below), set(names)) for here, below, names in folders_below(tmp_path)}
    assert found == {here: (set(below), set(names)) for here, below, names in os.walk(tmp_path)}
    for here, below, _ in folders_below(tmp_path):
        assert not here.endswith(("/x", "/y", "/z"))
        below[:] = [name for name in below if name not in ("x", "y")]
    assert list(folders_below(tmp_path / "none")) == []


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    top = tmp_path / "top"
    perl = f"chdir shift; for (1..30) {{ mkdir '{LONG}'; chdir '{LONG}' or die }}"
    top.mkdir()
    run(["perl", "-e", perl, top])
    try:
        with pytest.raises(WorkError, match=r"^/d+.*: the path has \d{4} bytes, which no program"):
            list(walk(top))
    finally:
        remove(top)
    assert not top.exists()
