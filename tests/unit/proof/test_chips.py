# SPDX-License-Identifier: Apache-2.0
"""The table of accelerators."""

from __future__ import annotations

import re

import pytest

from imagebuilder.chips import CHIPS, STAND_INS, find_chip


@pytest.mark.parametrize(
    ("pci", "target", "module"),
    [
        ("1002:7480", "gfx1102", "amdgpu"),
        ("1002:1586", "gfx1151", "amdgpu"),
        ("1022:17f0", "", "amdxdna"),
        ("8086:56a0", "dg2", "i915"),
        ("10de:2f04", "sm_120", "nvidia"),
        ("10de:2b85", "sm_120", "nvidia"),
        ("10de:2bb1", "sm_120", "nvidia"),
        ("10de:2bb5", "sm_120", "nvidia"),
        ("10DE:26B9", "sm_89", "nvidia"),
    ],
)
def test_every_device_of_the_clusters_is_known(pci: str, target: str, module: str) -> None:
    chip = find_chip(pci)
    assert chip is not None
    assert chip.target == target
    assert module in chip.modules


def test_an_unknown_device_is_none() -> None:
    assert find_chip("1234:5678") is None


def test_rows_are_whole() -> None:
    assert len({chip.pci for chip in CHIPS}) == len(CHIPS)
    for chip in CHIPS:
        assert re.fullmatch("[0-9a-f]{4}:[0-9a-f]{4}", chip.pci)
        assert chip.name
        assert chip.source
        assert chip.modules
        assert chip.firmware
        for glob in chip.firmware:
            assert not glob.startswith("/")
            assert not glob.endswith((".xz", ".zst"))


def test_a_stand_in_is_of_another_name() -> None:
    for newer, older in STAND_INS:
        assert not newer.endswith(older)
        assert not older.endswith(newer)
