# SPDX-License-Identifier: Apache-2.0
"""What a step may leave: no more than can be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.store.upper import settle

GIB = 1 << 30


def make_sparse(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


def test_files_of_nothing_that_are_too_large_together(tmp_path: Path) -> None:
    """Every command that reads the image reads them in full, which would take hours."""
    for number in range(3):
        make_sparse(tmp_path / f"big{number}", (100 + number) * GIB)
    with pytest.raises(WorkError, match="left files of 303 GiB together, but the limit is 256"):
        settle(tmp_path, [])
    (tmp_path / "big1").unlink()
    assert settle(tmp_path, []).additive


def test_names_of_one_file_count_once(tmp_path: Path) -> None:
    make_sparse(tmp_path / "big", 200 * GIB)
    for number in range(3):
        os.link(tmp_path / "big", tmp_path / f"again{number}")
    assert settle(tmp_path, []).additive


def test_the_name_of_a_file_that_is_too_large_is_one_printable_line(tmp_path: Path) -> None:
    make_sparse(tmp_path / "big\n\x1b[2J", 300 * GIB)
    with pytest.raises(WorkError, match="left a file of 300 GiB") as caught:
        settle(tmp_path, [])
    assert caught.value.faults[0].where == r"/big\n\x1b[2J"
