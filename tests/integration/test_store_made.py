# SPDX-License-Identifier: Apache-2.0
"""The store is made whole, and what a kill left of one in its place becomes one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.process import run
from imagebuilder.store.repository import Store, make_store
from tests.integration.published import check_objects

pytestmark = pytest.mark.root
# What `ostree init` makes, in its order.
PARTS = (
    "config", "tmp", "extensions", "state", "refs", "refs/heads", "refs/mirrors", "refs/remotes",
    "objects",
)  # fmt: skip


def check_usable(store: Store, top: Path) -> None:
    """It takes a commit and gives it back, and is whole in ostree's eyes."""
    tree = top / "tree"
    tree.mkdir()
    (tree / "file").write_text("content")
    commit = store.commit(tree, epoch=1)
    store.bind("layer/one", commit)
    assert store.find_layer("one") == commit
    store.checkout(commit, top / "out")
    assert (top / "out/file").read_text() == "content"
    check_objects(store.path)
    assert store.is_there()
    assert list((top / "state").glob("work/*")) == []


@pytest.mark.parametrize("made", range(len(PARTS)))
def test_a_store_that_was_cut_off_while_made_is_completed(tmp_path: Path, made: int) -> None:
    path = tmp_path / "state/store"
    path.mkdir(parents=True)
    for name in PARTS[:made]:
        if name == "config":
            (path / name).write_text("[core]\nrepo_version=1\nmode=bare\n")
        else:
            (path / name).mkdir()
    assert not Store(path).is_there()
    check_usable(make_store(path), tmp_path)


@pytest.mark.parametrize("name", ["config", "refs/heads", "tmp"])
def test_a_store_with_content_that_lacks_a_part_keeps_its_content(
    tmp_path: Path, name: str
) -> None:
    store = make_store(tmp_path / "state/store")
    tree = tmp_path / "before"
    tree.mkdir()
    (tree / "old").write_text("old")
    commit = store.commit(tree, epoch=1)
    if name == "config":
        (store.path / name).write_bytes(b"")
    else:
        run(["rm", "-r", "--", store.path / name])
    assert not store.is_there()
    check_usable(make_store(store.path), tmp_path)
    assert store.read(commit, "/old") == "old"


def test_two_who_make_a_store_make_one(tmp_path: Path) -> None:
    path = tmp_path / "state/store"
    threads = [threading.Thread(target=make_store, args=(path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_usable(Store(path), tmp_path)


def test_a_store_that_cannot_be_made_is_an_error_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(HostError, match="cannot make the store"):
        make_store(tmp_path / "state/store")
