# SPDX-License-Identifier: Apache-2.0
"""Package managers by entry point: what loads, and what a person is told of what does not."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.package_managers import (
    DISTRIBUTIONS,
    GROUP,
    OURS,
    PACKAGE_MANAGERS,
    find_package_managers,
    load_entry,
    manager_of,
)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nowhere_at_all:MANAGER", "No module named 'nowhere_at_all'"),
        ("imagebuilder.package_managers:NONE", "has no attribute 'NONE'"),
        ("imagebuilder.package_managers:GROUP", GROUP),
    ],
)
def test_an_entry_point_that_gives_no_package_manager_is_said(value: str, why: str) -> None:
    with pytest.raises(HostError) as caught:
        load_entry(EntryPoint("odd", value, GROUP))
    said = str(caught.value)
    assert f"odd = {value}" in said
    assert why in said
    assert "remove the Python package" in said


def test_an_installed_package_adds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd-1.dist-info").mkdir()
    (tmp_path / "odd-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: odd\n")
    (tmp_path / "odd-1.dist-info/entry_points.txt").write_text(
        f"[{GROUP}]\nodd = odd_manager:ODD\n"
    )
    (tmp_path / "odd_manager.py").write_text(
        "from imagebuilder.package_managers import PackageManager\n"
        'ODD = PackageManager("odd", "odd:ODD", "odds", ("oddlinux",), ("odd",))\n'
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = find_package_managers()
    assert list(found) == [*(manager.name for manager in OURS), "odd"]
    assert found["odd"].distributions == ("oddlinux",)


def test_a_distribution_leads_to_what_makes_it() -> None:
    assert all(name in manager_of(name).distributions for name in DISTRIBUTIONS)
    assert manager_of("ubuntu") is PACKAGE_MANAGERS["apt"]
    with pytest.raises(KeyError):
        manager_of("plan9")
