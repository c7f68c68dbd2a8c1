# SPDX-License-Identifier: Apache-2.0
"""What is read of folders and mounts."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from imagebuilder import folders
from imagebuilder.errors import WorkError
from imagebuilder.folders import read_mounts
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
