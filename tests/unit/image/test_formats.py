# SPDX-License-Identifier: Apache-2.0
"""A root packed into one file: the same bytes from the same content."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from imagebuilder.image.formats import export_image, pack_root
from imagebuilder.rootkind import FORMAT_OF, KINDS, Format, packed_file
from imagebuilder.store.repository import make_store
from tests.integration.published import make_image, quiet

NAMES = ("usr/lib/a", "usr/lib/b", "etc/empty", "etc/passwd")
COMMIT = "c0ffee" * 10 + "cafe"


def make_tree(path: Path, names: tuple[str, ...], stamp: int) -> Path:
    """A small root, its files made in this order and of this time."""
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("" if name.endswith("empty") else f"{name}\n" * 5000)
    (path / "usr/bin").mkdir()
    os.link(path / "usr/lib/a", path / "usr/bin/a")
    (path / "lib").symlink_to("usr/lib")
    for each in (*path.rglob("*"), path):
        os.utime(each, (stamp, stamp), follow_symlinks=False)
    return path


@pytest.mark.parametrize("packed", Format)
def test_the_same_content_is_packed_to_the_same_bytes(tmp_path: Path, packed: Format) -> None:
    trees = (
        make_tree(tmp_path / "one", NAMES, 1_600_000_000),
        make_tree(tmp_path / "two", NAMES[::-1], 1_700_000_000),
    )
    for number, tree in enumerate(trees):
        pack_root(tree, tmp_path / f"{number}", packed, epoch=1_500_000_000, commit=COMMIT)
    first = (tmp_path / "0").read_bytes()
    assert (tmp_path / "1").read_bytes() == first
    # The start of the superblocks: fs/squashfs/squashfs_fs.h, fs/erofs/erofs_fs.h.
    starts = {Format.SQUASHFS: (0, b"hsqs"), Format.EROFS: (1024, b"\xe2\xe1\xf5\xe0")}
    start, magic = starts[packed]
    assert first[start : start + 4] == magic
    if packed is Format.EROFS:
        assert bytes.fromhex(COMMIT[:32]) in first[1024:1152]
    (trees[0] / "etc/passwd").write_text("another\n")
    pack_root(trees[0], tmp_path / "2", packed, epoch=1_500_000_000, commit=COMMIT)
    assert (tmp_path / "2").read_bytes() != first


def test_every_kind_but_a_tree_is_one_file() -> None:
    assert [packed_file(kind) for kind in KINDS] == [
        "", "root.squashfs", "root.squashfs", "root.erofs",
    ]  # fmt: skip
    assert FORMAT_OF.keys() == {kind for kind in KINDS if packed_file(kind)}


def test_what_a_killed_export_left_goes_with_the_next(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    image = make_image(store, tmp_path / "work", 1)
    place = tmp_path / "exported"
    kept = place / ".two.bak"  # a name that is somebody else's
    kept.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        try:
            export_image(store, image, place / "one", quiet(), packed=Format.SQUASHFS)
        finally:
            os._exit(1)
    end = time.monotonic() + 30
    while not list(place.glob(".[!t]*")):
        assert time.monotonic() < end
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert sorted(place.iterdir()) != [kept]
    export_image(store, image, place / "two", quiet())
    assert sorted(place.iterdir()) == [kept, place / "two"]
    assert (place / "two/root/etc").is_dir()
