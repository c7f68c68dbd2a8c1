# SPDX-License-Identifier: Apache-2.0
"""Channels that lead elsewhere, and things in a tree that nobody expects there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, WorkError
from imagebuilder.nodes.references import find_channel_faults, find_version
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.find import find_tree
from imagebuilder.publish.removal import Caution, collect_releases, unpublish
from imagebuilder.tree import CANDIDATE, CHANNELS, FOLDERS, LATER, STABLE, Tree, make_tree
from tests.unit.test_publish_channel import UNTESTED, make_release, quiet

OLD, NEW, OTHER = "20260101-aa", "20260102-ab", "20260103-ba"
BOLD = Caution(boot_minutes=0, strangers=True)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two releases of `demo`, the old one stable, and one of another profile."""
    tree = make_tree(tmp_path / "netboot")
    for version in (OLD, NEW):
        make_release(tree, version)
    make_release(tree, OTHER, "other")
    promote(tree, f"demo@{OLD}", quiet(), untested=UNTESTED)
    return tree


def lead(target: str) -> Callable[[Path], object]:
    return lambda link: link.symlink_to(target)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "another profile": (lead(f"../../http/releases/other/{OTHER}"), "does not point to a release"),
    "nothing": (lead("../../http/releases/demo/20250101-zz"), "does not point to a release"),
    "a folder of the host": (lead("/etc"), "does not point to a release"),
    "itself": (lead("stable"), "does not point to a release"),
    "a folder": (Path.mkdir, "is not a link"),
    "a file": (Path.touch, "is not a link"),
    "a pipe": (os.mkfifo, "is not a link"),
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_that_leads_elsewhere_is_told_and_can_be_replaced(
    tree: Tree, what: str, channel: str
) -> None:
    make, said = ODD[what]
    link = tree.channel("demo", channel)
    link.unlink(missing_ok=True)
    make(link)
    (fault,) = find_channel_faults(tree)
    assert fault.where == os.fspath(link)
    assert said in fault.what
    assert fault.hint
    assert find_version(tree, "demo", channel) == ""
    # 1. Nothing is removed, and no command takes it for the release of that name.
    for remove in (
        lambda: unpublish(tree, f"demo@{NEW}", quiet(), BOLD),
        lambda: collect_releases(tree, quiet(), BOLD, keep=1, dry_run=True),
        (lambda: rollback(tree, "demo", quiet()))
        if channel == STABLE
        else (lambda: promote(tree, "demo", quiet(), untested=UNTESTED)),
    ):
        with pytest.raises(WorkError, match=re.escape(f"{link}: {said}")):
            remove()
    if channel == CANDIDATE:
        return
    # 2. What the hint says repairs it.
    if not link.is_symlink():
        with pytest.raises(WorkError, match="is not a link"):
            promote(tree, f"demo@{NEW}", quiet(), untested=UNTESTED)
        link.rename(link.with_name("old"))
        promote(tree, f"demo@{OLD}", quiet(), untested=UNTESTED)
    rollback(tree, "demo", quiet(), to=OLD)
    assert find_version(tree, "demo", STABLE) == OLD
    assert find_channel_faults(tree) == []


def test_what_lies_in_the_way_in_work_is_swept(tree: Tree) -> None:
    work = tree.path / "work"
    (work / "file").touch()
    (work / "link").symlink_to("/etc")
    os.mkfifo(work / "pipe")
    (work / "folder").mkdir()
    collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False)
    assert list(work.iterdir()) == []
    assert Path("/etc").is_dir()
    work.rmdir()
    work.touch()
    with pytest.raises(WorkError, match=f"{work}: is not a folder") as caught:
        collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False)
    assert f"mv {work}" in caught.value.faults[0].hint


@pytest.mark.parametrize("enter", [find_tree, make_tree])
@pytest.mark.parametrize("name", ["http", *FOLDERS, *LATER])
def test_a_folder_of_the_tree_that_is_a_link_is_refused(
    tree: Tree, tmp_path: Path, name: str, enter: Callable[[Path], Tree]
) -> None:
    folder, elsewhere = tree.path / name, tmp_path / "elsewhere"
    folder.mkdir(parents=True, exist_ok=True)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    with pytest.raises(HostError) as refused:
        enter(tree.path)
    (fault,) = refused.value.faults
    assert fault.where == os.fspath(folder)
    assert f"is a symlink to {elsewhere}" in fault.what
