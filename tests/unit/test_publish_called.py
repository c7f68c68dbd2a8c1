# SPDX-License-Identifier: Apache-2.0
"""Which trees root writes to for somebody who may run `receive` through sudo."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.locks import file_lock
from imagebuilder.process import run
from imagebuilder.publish.transport.local import check_called
from imagebuilder.rights import check_roots_alone
from imagebuilder.tree import Tree, make_tree
from tests.workshop import CHECKOUT

CALLED = {"SUDO_UID": "4321", "SUDO_GID": "4321", "SUDO_USER": "eve"}
pytestmark = pytest.mark.root


@pytest.mark.parametrize("called", [{}, CALLED])
def test_a_tree_of_root_is_written(tmp_path: Path, called: dict[str, str]) -> None:
    tree = make_tree(tmp_path / "tree")
    for each in (tree, Tree(tmp_path / "new/tree"), Tree(tmp_path / "nothing")):
        check_called(each, called)
    (tmp_path / "nothing").mkdir()
    check_called(Tree(tmp_path / "nothing"), called)


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_where_they_may_make_links_nothing_is_written(tmp_path: Path, mode: int) -> None:
    theirs = tmp_path / "eve"
    theirs.mkdir(mode=mode)
    os.chown(theirs, 4321, 4321)
    (tmp_path / "link").symlink_to(theirs)
    places = (theirs, theirs / "new", make_tree(theirs / "tree").path, tmp_path / "link/new")
    for place in (*places, tmp_path / "none" / ".." / "eve/new"):
        with pytest.raises(HostError, match="users other than root may"):
            check_called(Tree(place), CALLED)
        check_called(Tree(place), {})  # root chose it


@pytest.mark.parametrize(("mode", "group"), [(0o777, 0), (0o1777, 0), (0o775, 4321)])
def test_a_folder_that_others_may_write_holds_no_new_tree(
    tmp_path: Path, mode: int, group: int
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, 0, group)
    shared.chmod(mode)
    for place in (shared, shared / "new"):
        with pytest.raises(HostError, match="users other than root may"):
            check_roots_alone(place)
    made = make_tree(shared / "tree")  # which nobody can replace if the folder is sticky
    if mode & 0o1000:
        check_called(made, CALLED)
    else:
        with pytest.raises(HostError, match="users other than root may"):
            check_called(made, CALLED)


def test_a_folder_with_something_else_in_it_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "etc/work").mkdir(parents=True)
    with pytest.raises(HostError, match="neither a netboot tree nor an empty folder"):
        check_called(Tree(tmp_path / "etc"), CALLED)


@pytest.mark.parametrize(
    ("stdin", "words", "said"),
    [
        (b"", (), "standard input: nobody sends an image\n  hint: run imagebuilder publish"),
        (
            b"PK",
            (),
            "standard input: has other things than the objects of an image\n  hint: run ",
        ),
        (b"", ("--reports",), "the netboot tree does not exist"),
    ],
)
def test_nothing_is_made_for_who_types_the_command_of_the_receiving_end(
    tmp_path: Path, stdin: bytes, words: tuple[str, ...], said: str
) -> None:
    place = tmp_path / "new/tree"
    argv = [sys.executable, "-m", "imagebuilder.cli.main", "receive", "--tree", str(place), *words,
            "demo@1", "a" * 64]  # fmt: skip
    env = {"IMAGEBUILDER_PROJECT": os.fspath(CHECKOUT), "IMAGEBUILDER_STATE": str(tmp_path / "s")}
    done = run(argv, stdin=stdin, env=env, check=False)
    assert done.status == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch(mode=0o644)
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"), file_lock(link):
        pass
    assert target.stat().st_mode & 0o777 == 0o644
