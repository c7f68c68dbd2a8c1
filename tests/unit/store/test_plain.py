# SPDX-License-Identifier: Apache-2.0
"""Objects that are no files: named, before `ostree` would wait for them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.files import write_file
from imagebuilder.store.objects import (
    SUM,
    DamagedObjectError,
    frame,
    object_path,
    read_commit,
    read_folder,
)
from imagebuilder.store.plain import COMMIT, DIRMETA, DIRTREE, FILE, check_objects, check_top
from imagebuilder.store.repository import Store
from imagebuilder.store.verify import find_damaged, name_of

CONTENT = bytes(SUM)


def put(repo: Path, data: bytes, kind: str) -> str:
    """An object with this content; its checksum."""
    checksum = hashlib.sha256(data).hexdigest()
    path = repo / "objects" / object_path(checksum, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)
    return checksum


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, Path]:
    """The objects of a commit with one file, as far as our reader looks."""
    entry = b"manifest.json\0" + CONTENT
    files = frame(frame(entry, [len("manifest.json") + 1]), [])
    listed = files + bytes([len(files)])
    tree = put(tmp_path, frame(listed, [len(listed)]), DIRTREE)
    meta = put(tmp_path, b"meta", DIRMETA)
    commit = put(tmp_path, frame(bytes.fromhex(tree + meta), [SUM] * 6), COMMIT)
    file = tmp_path / "objects" / object_path(CONTENT.hex(), FILE)
    file.parent.mkdir(exist_ok=True)
    file.symlink_to("missing")
    sums = {COMMIT: commit, DIRTREE: tree, DIRMETA: meta}
    paths = {kind: tmp_path / "objects" / object_path(name, kind) for kind, name in sums.items()}
    return {**paths, FILE: file}


def commit_of(objects: dict[str, Path]) -> str:
    return objects[COMMIT].parent.name + objects[COMMIT].stem


def test_files_and_the_link_of_a_link_are_plain(tmp_path: Path, objects: dict[str, Path]) -> None:
    check_objects(tmp_path)
    check_top(tmp_path, commit_of(objects))


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", [COMMIT, DIRTREE, DIRMETA, FILE])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, link])
def test_an_object_that_is_no_file(
    tmp_path: Path, objects: dict[str, Path], kind: str, make: Callable[[Path], None]
) -> None:
    path, commit = objects[kind], commit_of(objects)
    path.unlink()
    make(path)
    if kind == FILE and make is link:
        check_objects(tmp_path)
        return
    store = Store(tmp_path)
    for work in (
        lambda: store.read(commit, "/manifest.json"),
        lambda: store.checkout(commit, tmp_path / "out"),
        store.prune,
    ):
        with pytest.raises(DamagedObjectError) as caught:
            work()
        fault = caught.value.faults[0]
        assert (fault.where, fault.what) == (os.fspath(path), "is not a file")
        assert fault.hint == "run imagebuilder fsck to see everything that is damaged"
    name = name_of(os.fspath(path.relative_to(tmp_path / "objects")))
    assert find_damaged(tmp_path, [name]) == {name: "is not a file"}


def test_objects_that_are_missing_are_left_to_ostree(
    tmp_path: Path, objects: dict[str, Path]
) -> None:
    for kind in (FILE, DIRMETA, DIRTREE, COMMIT):
        objects[kind].unlink()
        check_top(tmp_path, commit_of(objects))


@pytest.mark.parametrize(("kind", "read"), [(COMMIT, read_commit), (DIRTREE, read_folder)])
def test_an_object_without_content_is_damaged(
    tmp_path: Path, kind: str, read: Callable[[Path, str], object]
) -> None:
    with pytest.raises(DamagedObjectError, match="is empty"):
        read(tmp_path, put(tmp_path, b"", kind))
