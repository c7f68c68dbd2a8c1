# SPDX-License-Identifier: Apache-2.0
"""Which check files an image has."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.checks.find import COMMON_FOLDER, find_checks
from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import InputError


def test_common_checks_come_first_then_the_overlays_in_order(tmp_path: Path) -> None:
    for name in ("b/checks/test_two.py", "b/checks/test_one.py", "a/checks/more.py", "c/README"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    found = find_checks({path.name: path for path in tmp_path.iterdir()}, ["b", "c", "a"])
    common = [file for file in found if file.group == "common"]
    assert [file.path for file in common] == sorted(COMMON_FOLDER.glob("test_*.py"))
    assert len(common) >= 4
    assert [file.name for file in found[len(common) :]] == [
        "b/test_one.py",
        "b/test_two.py",
        "a/more.py",
    ]
    assert found[-1].digest == digest_of_bytes(b"a/checks/more.py")


def test_an_overlay_of_another_project_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an overlay elsewhere, which this project"):
        find_checks({"here": tmp_path}, ["elsewhere"])
