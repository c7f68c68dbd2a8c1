# SPDX-License-Identifier: Apache-2.0
"""Receiving what is small on its way and large where it arrives."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pytest

from imagebuilder.errors import FullError, InputError, WorkError
from imagebuilder.process import run
from imagebuilder.publish.release import repo
from imagebuilder.publish.transport import stream
from imagebuilder.publish.transport.stream import unpack_objects
from imagebuilder.store.extent import Extent, measure
from imagebuilder.store.objects import (
    Folder,
    frame,
    list_objects,
    object_path,
    read_commit,
    read_folder,
    read_object,
)
from imagebuilder.store.repository import ImageRef, Store
from tests.integration.test_remote import builder, make_image, take

__all__ = ["builder"]  # a fixture
pytestmark = pytest.mark.root
MIB = 1 << 20


def put_object(store: Store, content: bytes, kind: str) -> str:
    """Add an object that ostree would not make; returns its checksum."""
    checksum = hashlib.sha256(content).hexdigest()
    path = store.path / "objects" / object_path(checksum, kind)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return checksum


def put_folder(store: Store, folder: Folder) -> str:
    """Add a dirtree; returns its checksum."""

    def listed(names: Mapping[str, str]) -> bytes:
        entries = []
        for name, sums in sorted(names.items()):
            end, size = len(name) + 1, len(name) + 1 + len(sums) // 2
            ends = range(size - 32, end - 1, -32)  # of all parts but the last
            entries.append(frame(f"{name}\0".encode() + bytes.fromhex(sums), ends))
        ends_of_all = accumulate(map(len, entries))
        return frame(b"".join(entries), ends_of_all) if entries else b""

    files = listed(folder.files)
    folders = listed({name: "".join(sums) for name, sums in folder.folders.items()})
    return put_object(store, frame(files + folders, [len(files)]), "dirtree")


def with_top(store: Store, commit: str, top: str) -> str:
    """The commit with another top folder."""
    tree, _ = read_commit(store.path, commit)
    content = read_object(store.path, commit, "commit")
    return put_object(store, content.replace(bytes.fromhex(tree), bytes.fromhex(top)), "commit")


def doubled(store: Store, commit: str, times: int) -> str:
    """A commit of folders that each have the one before twice, `commit` below all of them."""
    top, meta = read_commit(store.path, commit)
    for _ in range(times):
        top = put_folder(store, Folder({}, {"a": (top, meta), "b": (top, meta)}))
    return with_top(store, commit, top)


def make_root(top: Path) -> Path:
    (top / "etc").mkdir(parents=True)
    (top / "etc/os-release").write_text("ID=tiny\n")
    return top


def with_root(store: Store, work: Path, commit: str) -> ImageRef:
    """An image whose root is that commit."""
    manifest = json.loads((work / "manifest.json").read_text())
    manifest["root"]["commit"] = commit
    (work / "manifest.json").write_text(json.dumps(manifest))
    return store.commit_image("small", "1", work, epoch=1)


def objects_of(store: Store, image: ImageRef) -> list[str]:
    root = json.loads(store.read(image.commit, "/manifest.json"))["root"]["commit"]
    return sorted(list_objects(store.path, image.commit) | list_objects(store.path, root))


@pytest.fixture
def files(builder: Store, tmp_path: Path) -> Path:
    """The files of an image, which a test may change."""
    image = make_image(builder, make_root(tmp_path / "root"), "0")
    builder.checkout(image.commit, tmp_path / "files", links=False)
    manifest = json.loads((tmp_path / "files/manifest.json").read_text())
    manifest["version"] = "1"
    (tmp_path / "files/manifest.json").write_text(json.dumps(manifest))
    return tmp_path / "files"


def root_of(files: Path) -> str:
    return str(json.loads((files / "manifest.json").read_text())["root"]["commit"])


@contextmanager
def lowest_inodes(folder: Path) -> Iterator[list[int]]:
    """How many inodes were free when the fewest were."""
    found, ended = [os.statvfs(folder).f_favail], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            found[0] = min(found[0], os.statvfs(folder).f_favail)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        ended.set()
        looking.join()


@contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """A file system of its own for the tree."""
    place.mkdir()
    run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place])
    try:
        yield place
    finally:
        run(["umount", place])


def test_each_place_of_a_folder_counts(builder: Store, files: Path) -> None:
    commit = root_of(files)
    assert measure(builder.path, commit) == Extent(3, 2 * 4096)
    assert measure(builder.path, doubled(builder, commit, 2)) == Extent(3 + 4 * 3, 11 * 4096)
    # Never as many steps as paths.
    assert measure(builder.path, doubled(builder, commit, 200)).paths > 1 << 200


@pytest.mark.parametrize(("times", "error"), [(13, FullError), (200, WorkError)])
def test_folders_that_are_often_in_a_root_do_not_fill_the_disk(
    builder: Store, files: Path, tmp_path: Path, times: int, error: type[WorkError | FullError]
) -> None:
    image = with_root(builder, files, doubled(builder, root_of(files), times))
    with small_disk(tmp_path / "disk", "size=1G,nr_inodes=15000") as disk:
        with lowest_inodes(disk) as lowest, pytest.raises(error, match="files and folders"):
            take(disk / "tree", builder, image, objects_of(builder, image))
        assert lowest[0] > 14_000
        assert list((disk / "tree/work").iterdir()) == []
        assert not list((disk / "tree").glob("http/releases/small/*"))


def test_folders_that_are_often_in_an_image_do_not_fill_the_disk(
    builder: Store, files: Path, tmp_path: Path
) -> None:
    good = builder.commit_image("small", "1", files, epoch=1)
    top, meta = read_commit(builder.path, good.commit)
    many, _ = read_commit(builder.path, doubled(builder, good.commit, 100))
    folder = Folder(read_folder(builder.path, top).files, {"many": (many, meta)})
    commit = with_top(builder, good.commit, put_folder(builder, folder))
    image = ImageRef("small", "1", commit)
    with small_disk(tmp_path / "disk", "size=1G,nr_inodes=15000") as disk:
        with lowest_inodes(disk) as lowest, pytest.raises(WorkError, match="files and folders"):
            take(disk / "tree", builder, image, objects_of(builder, image))
        assert lowest[0] > 14_000


def test_a_root_larger_than_the_disk_is_not_published(
    builder: Store, files: Path, tmp_path: Path
) -> None:
    """Few objects, which many paths share: whoever verifies the root reads each path."""
    root = make_root(tmp_path / "holes")
    with (root / "etc/holes").open("wb") as holes:
        holes.truncate(20 * MIB)
    manifest = json.loads((files / "manifest.json").read_text())
    manifest["root"]["size"] = 1 << 50
    (files / "manifest.json").write_text(json.dumps(manifest))
    image = with_root(builder, files, doubled(builder, builder.commit(root, epoch=1), 6))
    refused = pytest.raises(WorkError, match=r"could not publish small@1: \S+etc/holes has 2")
    (good,) = (each for each in builder.images() if each.version == "0")
    with small_disk(tmp_path / "disk", "size=400M") as disk:
        # Of a profile's second root, nobody asks beforehand whether what it says of its size fits.
        take(disk / "tree", builder, good, objects_of(builder, good))
        with refused:
            take(disk / "tree", builder, image, objects_of(builder, image))


def test_an_initrd_of_holes_does_not_fill_the_disk(
    builder: Store, files: Path, tmp_path: Path
) -> None:
    with (files / "initrd.img").open("wb") as holes:
        holes.truncate(350 * MIB)
    manifest = json.loads((files / "manifest.json").read_text())
    digest = hashlib.sha256(bytes(350 * MIB)).hexdigest()
    manifest["kernel"]["initrd"] = {"sha256": digest, "size": 350 * MIB}
    (files / "manifest.json").write_text(json.dumps(manifest))
    image = with_root(builder, files, root_of(files))
    with small_disk(tmp_path / "disk", "size=300M") as disk:
        (disk / "tree").mkdir()
        refused = pytest.raises(FullError, match=r"needed for initrd.img of small@1")
        with refused, plain_copies(builder):
            take(disk / "tree", builder, image, objects_of(builder, image))
        assert list((disk / "tree/work").iterdir()) == []


@contextmanager
def plain_copies(store: Store) -> Iterator[None]:
    """A store whose files of zeros are holes."""
    for path in store.path.glob("objects/*/*.file"):
        if path.is_file() and path.stat().st_size > MIB:
            run(["fallocate", "--dig-holes", path])
    yield


def test_a_sender_leaves_some_inodes_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "size=1G,nr_inodes=300000") as disk:
        monkeypatch.setattr(stream, "LEAST_INODES", 200_000)
        sent = tmp_path / "stream"
        with subprocess.Popen(["zstd", "-q", "-o", sent], stdin=subprocess.PIPE) as packer:
            assert packer.stdin
            for number in range(300_000):
                name = f"{number % 256:02x}/{number:062x}.file"
                packer.stdin.write(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
            packer.stdin.write(bytes(1024))
        with (
            lowest_inodes(disk) as lowest,
            sent.open("rb") as arriving,
            pytest.raises(FullError, match="the disk is full; nothing was changed"),
        ):
            unpack_objects(arriving, disk)
        assert lowest[0] > 100_000


def test_a_root_of_many_files_is_no_bomb(builder: Store, files: Path, tmp_path: Path) -> None:
    image = with_root(builder, files, root_of(files))
    take(tmp_path / "tree", builder, image, objects_of(builder, image))
    assert (tmp_path / "tree/roots/small/1/etc/os-release").read_text() == "ID=tiny\n"
    assert repo.MOST_PATHS > 5_000_000, "the largest roots have two million"


def test_what_becomes_no_release_leaves_nothing_on_the_disk(
    builder: Store, files: Path, tmp_path: Path
) -> None:
    run(["cp", "--archive", files, tmp_path / "other"])
    tree = tmp_path / "tree"
    image = with_root(builder, files, root_of(files))
    take(tree, builder, image, objects_of(builder, image))
    before = list_names(tree)
    root = make_root(tmp_path / "large")
    (root / "etc/large").write_bytes(os.urandom(MIB))
    other = with_root(builder, tmp_path / "other", builder.commit(root, epoch=1))
    for _ in range(2):
        with pytest.raises(InputError, match="another image is published under this name"):
            take(tree, builder, other, objects_of(builder, other))
        assert list_names(tree) == before


def list_names(tree: Path) -> set[str]:
    """Every object of the tree's repository."""
    return {path.name for path in tree.glob("repo/objects/*/*")}
