# SPDX-License-Identifier: Apache-2.0
"""The versions that cards need agree with what kernels, drivers and Mesa were seen to know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

import pytest

from imagebuilder.recipe.agreement import numbers
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.chip import Chip
from tests.unit.each import for_each
from tests.unit.recipe.test_cards import BY_PCI, CHIPS, FIXTURES, lines_of_drivers

# What since.txt is about, the oldest first.
KERNELS = (
    "5.4", "5.8", "5.11", "5.13", "5.15", "5.19", "6.1", "6.2", "6.5", "6.8", "6.12", "6.16",
    "6.17", "6.18", "7.2",
)  # fmt: skip


@cache
def since() -> Mapping[tuple[str, str], str]:
    """The first kernel that has a firmware file or an id, of those that the oldest lacks."""
    lines = (FIXTURES / "since.txt").read_text().splitlines()
    words = (line.split() for line in lines if not line.startswith("#"))
    return {(module, value): kernel for module, kernel, value in words}


@cache
def lines_known_to(kernel: str) -> frozenset[tuple[str, str, str]]:
    """Kind, module and value of all that the drivers of a kernel claim or ask for."""
    first = since()
    lines = {
        (kind, *line) for kind in ("firmware", "absent", "alias") for line in lines_of_drivers(kind)
    }
    lines |= {("firmware", *line) for line in first if "/" in line[1]}
    return frozenset(
        line for line in lines if older(first.get((line[1], line[2]), KERNELS[0]), kernel)
    )


def knows(chip: Chip, kernel: str) -> bool:
    """Whether the drivers of a kernel claim a card and list all that it asks for."""
    known = [
        (kind, value) for kind, module, value in lines_known_to(kernel) if module in chip.modules
    ]
    return any(kind == "alias" and fnmatchcase(chip.pci, value) for kind, value in known) and all(
        any(kind != "alias" and fnmatchcase(value, glob) for kind, value in known)
        for glob in chip.firmware
    )


def older(one: str, other: str) -> bool:
    return numbers(one) <= numbers(other)


@for_each(BY_PCI)
def test_minimum_is_the_kernel_that_knows_the_card(chip: Chip) -> None:
    """The kernels from `minimum` on know the card, and those before do not."""
    if chip.vendor == "NVIDIA" or chip.modules == ("amdxdna",):
        return
    assert [kernel for kernel in KERNELS if knows(chip, kernel)] == [
        kernel for kernel in KERNELS if older(chip.kernel, kernel)
    ]


# The targets of RDNA that libvulkan_radeon.so of Debian 12 and of Debian 13 names (strings).
RADV = {
    "22.3": {*range(1030, 1037), *range(1100, 1104)},
    "25.0": {*range(1030, 1037), *range(1100, 1104), *range(1150, 1154), 1200, 1201},
}


@pytest.mark.parametrize("mesa", RADV)
def test_minimum_is_the_mesa_that_knows_the_card(mesa: str) -> None:
    for chip in CHIPS:
        if chip.architecture.startswith("RDNA ") and "vulkan" in chip.computes:
            assert chip.minimum.get("mesa"), chip
            known = int(chip.target.removeprefix("gfx")) in RADV[mesa]
            assert older(chip.minimum["mesa"], mesa) is known, chip


DRIVERS = ("390", "418", "440", "450", "460", "470", "535", "550", "570", "580", "595")


@for_each(BY_PCI)
def test_minimum_and_maximum_are_the_drivers_that_list_the_card(chip: Chip) -> None:
    if chip.vendor != "NVIDIA":
        return
    lines = (FIXTURES / "nvidia.txt").read_text().splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    assert chip.pci in listed, f"nvidia.txt has no line: {chip.pci} FIRST-DRIVER LAST-DRIVER"
    first, last = listed[chip.pci].split()
    assert [one for one in DRIVERS if older(chip.minimum["driver"], one)] == [
        one for one in DRIVERS if older(first, one)
    ]
    if chip.architecture in ("Pascal", "Volta"):
        assert chip.maximum == {"driver": last, "cuda": "12.9"}
    else:  # two are no longer listed since 570, and nothing says that they were dropped
        assert not chip.maximum
        assert last == DRIVERS[-1] or chip.pci in ("10de:20b1", "10de:26b8")


def test_minimum_is_the_compute_runtime_that_has_the_id() -> None:
    lines = (FIXTURES / "runtime.txt").read_text().splitlines()
    first = dict(line.split() for line in lines if not line.startswith("#"))
    said = {chip.pci: chip.minimum["level-zero"] for chip in CHIPS if chip.vendor == "Intel"}
    assert said == first


# What a version may be from: bytes that somebody measured, or a document with its name.
KINDS = re.compile(
    r"modinfo of|\w+\.ko of|i915 of Ubuntu's|table of device ids in lib|strings of lib"
    r"|list of PCI ids|docs\.nvidia\.com, \"|CUDA Features Archive, 1\d\.\d"
    r"|compatibility-matrix|README of github\.com/|reviews\.llvm\.org/D\d+"
    r"|include/pci_ids/iris_pci_ids\.h of Mesa"
)


def unsourced(chip: Chip) -> list[str]:
    """The versions of a card whose source is missing or of no known kind."""
    keys = [f"minimum.{key}" for key in chip.minimum] + [f"maximum.{key}" for key in chip.maximum]
    said = {key: chip.sources.get(key, "") for key in keys}
    return [key for key, text in said.items() if not KINDS.search(text) or "memory" in text]


@for_each(BY_PCI)
def test_each_version_has_a_source_of_a_known_kind(chip: Chip) -> None:
    assert unsourced(chip) == []


@pytest.mark.parametrize("text", ["", "memory", "modinfo of amdgpu, from memory", "docs.amd.com"])
def test_a_version_without_such_a_source_is_found(text: str) -> None:
    chip = find_chip("1002:74a1")
    assert chip is not None
    planted = replace(chip, sources={**chip.sources, "minimum.rocm": text})
    assert unsourced(planted) == ["minimum.rocm"]


def test_a_version_that_nobody_could_confirm_is_said() -> None:
    chip = find_chip("1002:738c")
    assert chip is not None
    assert "rocm" not in chip.minimum
    assert "\n  rocm: not confirmed: AMD's compatibility matrix" in chip.render()
    assert "mesa" not in chip.render().partition("minimum:")[2]
