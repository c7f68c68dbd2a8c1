# SPDX-License-Identifier: Apache-2.0
"""A tree that is kept from one build to the next is what the store would check out."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.store.kept_tree import (
    change_tree,
    drop_trees,
    find_trees,
    keep_tree,
    take_tree,
)
from imagebuilder.store.objects import object_path
from imagebuilder.store.repository import Store
from tests.integration.changes import snapshot

pytestmark = pytest.mark.root

# Roots that differ in every way in which two roots can.
ROOTS = {
    "first": "echo 1 > a/file; ln -s file a/link; : > empty; chmod 2750 a",
    "content": "echo 2 > a/file; ln -s other a/link; : > empty; : > more; chmod 2750 a",
    "kinds": "rm -r b; echo file > b; mkdir a/file; echo x > a/file/x; mkdir a/link",
    "links": "rm -r a b; ln -s /etc a; ln -s a b",
    "owners": "echo 1 > a/file; chown 1:2 a/file; chown 3:4 b; chmod 700 b; chmod 755 .",
    "attributes": "echo 1 > a/file",
    "top": "chmod 711 .; chown 5:6 .",
    "nothing": "rm -r a b",
}


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, str]]:
    """A store with a commit of each of ROOTS, and the commits by name."""
    top = tmp_path_factory.mktemp("commits")
    store = Store(top / "store")
    run(["ostree", "init", f"--repo={store.path}", "--mode=bare"])
    made: dict[str, str] = {}
    for name, script in ROOTS.items():
        tree = top / name
        for folder in ("a", "b/deep"):
            (tree / folder).mkdir(parents=True)
        (tree / "b/deep/x").write_text("x")
        run(["sh", "-euc", script], cwd=tree)
        for path in ("b", "a/file") if name == "attributes" else ():
            os.setxattr(tree / path, "user.path", path.encode())
        made[name] = store.commit(tree, epoch=1)
    return store, made


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(ROOTS, 2)))
def test_any_checkout_becomes_any_other(
    commits: tuple[Store, dict[str, str]], tmp_path: Path, old: str, new: str
) -> None:
    store, made = commits
    store.checkout(made[old], tmp_path / "tree")
    store.checkout(made[new], tmp_path / "wanted")
    change_tree(store.path, tmp_path / "tree", made[old], made[new])
    assert snapshot(tmp_path / "tree") == snapshot(tmp_path / "wanted")
    tops = [(tmp_path / name).stat() for name in ("tree", "wanted")]
    assert len({(top.st_mode, top.st_uid, top.st_gid) for top in tops}) == 1
    for path in (tmp_path / "tree").rglob("*"):
        if path.is_dir() and not path.is_symlink():
            assert path.stat().st_mtime == 0
        elif path.is_file() and path.stat().st_size:
            twin = tmp_path / "wanted" / path.relative_to(tmp_path / "tree")
            assert path.samefile(twin), "a file is a link into the store"


def test_a_tree_is_taken_once(commits: tuple[Store, dict[str, str]], tmp_path: Path) -> None:
    store, made = commits
    store.checkout(made["first"], tmp_path / "tree")
    keep_tree(tmp_path, "demo", made["first"], tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    (kept,) = find_trees(tmp_path)
    inode = kept.stat().st_ino
    take_tree(tmp_path, store, "other", made["kinds"], tmp_path / "of-another-profile")
    assert kept.exists()
    for name in ("one", "two"):
        take_tree(tmp_path, store, "demo", made["kinds"], tmp_path / name)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")
    assert [(tmp_path / name).stat().st_ino == inode for name in ("one", "two")] == [True, False]


def test_the_last_tree_is_kept(commits: tuple[Store, dict[str, str]], tmp_path: Path) -> None:
    store, made = commits
    (tmp_path / "work").mkdir()
    for name in ("first", "kinds"):
        store.checkout(made[name], tmp_path / "work" / name)
        keep_tree(tmp_path, "demo", made[name], tmp_path / "work" / name)
    assert [tree.stem for tree in find_trees(tmp_path)] == [made["kinds"]]
    drop_trees(tmp_path)
    assert not list(find_trees(tmp_path))


def test_a_tree_from_before_the_machine_was_started_does_not_count(
    commits: tuple[Store, dict[str, str]], tmp_path: Path
) -> None:
    """It was not synced: after a power cut it may lack anything."""
    store, made = commits
    torn = tmp_path / "trees/demo" / f"{made['first']}.01234567-89ab-cdef-0123-456789abcdef"
    torn.mkdir(parents=True)
    take_tree(tmp_path, store, "demo", made["first"], tmp_path / "tree")
    store.checkout(made["first"], tmp_path / "wanted")
    assert snapshot(tmp_path / "tree") == snapshot(tmp_path / "wanted")


def test_a_tree_that_cannot_be_changed_is_checked_out(
    commits: tuple[Store, dict[str, str]], tmp_path: Path
) -> None:
    store, made = commits
    store.checkout(made["first"], tmp_path / "tree")
    keep_tree(tmp_path, "demo", "0" * 64, tmp_path / "tree")  # a commit that was pruned
    assert not (store.path / "objects" / object_path("0" * 64, "commit")).exists()
    take_tree(tmp_path, store, "demo", made["kinds"], tmp_path / "tree")
    store.checkout(made["kinds"], tmp_path / "wanted")
    assert snapshot(tmp_path / "tree") == snapshot(tmp_path / "wanted")
    assert not list(find_trees(tmp_path))


def test_a_tree_that_cannot_be_kept_fails_no_build(
    commits: tuple[Store, dict[str, str]], tmp_path: Path
) -> None:
    store, made = commits
    store.checkout(made["first"], tmp_path / "tree")
    (tmp_path / "trees").write_text("in the way")
    keep_tree(tmp_path, "demo", made["first"], tmp_path / "tree")
    assert (tmp_path / "tree").is_dir()
