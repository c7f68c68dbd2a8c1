# SPDX-License-Identifier: Apache-2.0
"""A folder against its OSTree commit: every kind of change is found, and nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.publish.release.verify import DamagedPath, How, find_changes
from imagebuilder.store.objects import DamagedObjectError, object_path, read_folder
from imagebuilder.store.repository import Store, make_store
from imagebuilder.store.verify import NO_FOLDER, find_damaged, objects_in

pytestmark = pytest.mark.root


@pytest.fixture
def root(place: Path) -> Path:
    """A folder with what makes headers and offsets of every width, and its commit."""
    top = place / "root"
    (top / "many").mkdir(parents=True)
    for number in range(1200):  # a dirtree of more than 64 KiB
        (top / f"many/{number:04}-{'n' * (number % 120)}").write_bytes(b"%d" % number * number)
    (top / "etc/äöü \n").mkdir(parents=True, mode=0o700)
    (top / "etc/äöü \n/x").write_text("x")
    (top / "etc/empty").touch()
    (top / "etc/large").write_bytes(os.urandom(3_000_000))
    (top / "etc/setuid").touch()
    (top / "etc/setuid").chmod(0o4755)
    os.chown(top / "etc/setuid", 12, 34_567)
    (top / "etc/folder").mkdir()
    (top / "etc/gone/with").mkdir(parents=True)
    os.chown(top / "etc/folder", 1000, 2000)
    for number in range(40):  # attributes of more than 255 bytes
        os.setxattr(top / "etc/empty", f"user.a{number}", b"v" * number)
    os.setxattr(top / "etc/folder", "user.b", b"\0")
    (top / "long").symlink_to("t" * 300)
    (top / "etc/link").symlink_to("empty", target_is_directory=False)
    os.lchown(top / "etc/link", 5, 6)
    return top


@pytest.fixture
def store(place: Path) -> Store:
    return make_store(place / "state/store")


def commit(store: Store, top: Path) -> str:
    """Commit a copy of the folder."""
    return store.ostree("commit", "--orphan", "--subject=x", f"--tree=dir={top}")


def swap(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else in the place of a file."""
    path.unlink()
    make(path)


CHANGES: dict[str, tuple[Callable[[Path], object], How]] = {
    "etc/large": (lambda p: os.truncate(p, 2_999_999), How.CHANGED),
    "etc/empty": (lambda p: os.setxattr(p, "user.a1", b"w"), How.CHANGED),
    "etc/setuid": (lambda p: os.chown(p, 12, 34_568), How.CHANGED),
    "etc/added\n": (lambda p: p.touch(), How.ADDED),
    "etc/äöü \n/x": (lambda p: p.unlink(), How.MISSING),
    "etc/gone": (shutil.rmtree, How.MISSING),
    "many/0007-nnnnnnn": (lambda p: p.chmod(0o600), How.CHANGED),
    "many/0008-nnnnnnnn": (lambda p: swap(p, os.mkfifo), How.KIND),
    "many/0009-nnnnnnnnn": (lambda p: swap(p, Path.mkdir), How.KIND),
    "many/0000-": (lambda p: swap(p, lambda p: p.symlink_to("/etc/shadow")), How.CHANGED),
    "long": (lambda p: swap(p, lambda p: p.symlink_to("t" * 301)), How.CHANGED),
    "etc/link": (lambda p: os.lchown(p, 5, 7), How.CHANGED),
    "etc/folder": (lambda p: p.chmod(0o1755), How.META),
    "etc/new": (lambda p: p.mkdir(), How.ADDED),
    ".": (lambda p: os.setxattr(p, "user.c", b"1"), How.META),
}


def test_every_kind_of_change_is_found_by_name(store: Store, root: Path) -> None:
    name = commit(store, root)
    assert find_changes(store.path, name, root) == []
    copy = root.with_name("copy")
    store.ostree("checkout", "--force-copy", name, copy)
    assert find_changes(store.path, name, copy) == []
    for path, (change, _) in CHANGES.items():
        change(copy / path)
    expected = [DamagedPath(path, how) for path, (_, how) in sorted(CHANGES.items())]
    assert find_changes(store.path, name, copy) == expected


def test_a_change_through_a_hard_link_is_found_although_the_repository_has_it_too(
    store: Store, root: Path
) -> None:
    name = commit(store, root)
    linked = root.with_name("linked")
    store.checkout(name, linked)
    with (linked / "etc/large").open("r+b") as stream:
        stream.write(b"changed")
    assert find_changes(store.path, name, linked) == [DamagedPath("etc/large", How.CHANGED)]


@pytest.mark.parametrize("kind", ["commit", "dirtree"])
def test_a_damaged_record_is_no_proof(store: Store, root: Path, kind: str) -> None:
    name = commit(store, root)
    for path in store.path.glob(f"objects/*/*.{kind}"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    (found,) = find_changes(store.path, name, root)
    assert (found.path, found.how) == (".", How.OBJECT)
    assert f".{kind} does not have the checksum of its name" in found.detail


def test_what_describes_no_folder_is_damaged(store: Store, root: Path) -> None:
    commit(store, root)
    names = objects_in(store.path)
    assert find_damaged(store.path, names) == {}
    folder = struct.pack(">III", 0, 0, 0o40755)
    for data in (b"x", struct.pack(">III", 0, 0, 0o100644), b"\xff" * 12, folder + b"\xff" * 7):
        checksum = hashlib.sha256(data).hexdigest()
        path = store.path / "objects" / object_path(checksum, "dirmeta")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        name = (checksum, "dirmeta")
        assert find_damaged(store.path, [*names, name]) == {name: NO_FOLDER}
        path.unlink()


def test_what_is_no_list_of_files_is_damaged(store: Store) -> None:
    for data in (b"x" * 9, b"\xff" * 40):
        checksum = hashlib.sha256(data).hexdigest()
        path = store.path / "objects" / object_path(checksum, "dirtree")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        with pytest.raises(DamagedObjectError, match="is not a list of files"):
            read_folder(store.path, checksum)


def test_a_folder_that_is_missing_or_a_file(store: Store, root: Path) -> None:
    name = commit(store, root)
    for path in (root / "nowhere", root / "etc/large"):
        (found,) = find_changes(store.path, name, path)
        assert (found.path, found.how) == (".", How.UNREADABLE)
