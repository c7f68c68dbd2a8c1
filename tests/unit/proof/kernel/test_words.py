# SPDX-License-Identifier: Apache-2.0
"""Words and options that take something from every node, and the usual ones that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.kernel.words import prove_words, size_of
from tests.unit.proof.trees import kernel_files, make_tree, subject

RADEON = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
USUAL = (
    "ro", "quiet", "console=ttyS0,115200", "amd_iommu=on", "iommu=pt", "pci=realloc", "mem=512G",
    "pcie_aspm=off", "mitigations=off", "hugepages=64", "ip=dhcp",
    "amdgpu.ip_block_mask=0xffffffff",
    "ttm.pages_limit=25165824", "transparent_hugepage=always", "i915.force_probe=*",
)  # fmt: skip


def told(path: Path, *words: str) -> list[str]:
    return [found.what for found in prove_words(subject(path, hardware=[RADEON], cmdline=words))]


def test_usual_words_are_let_pass(tmp_path: Path) -> None:
    assert told(tmp_path, *USUAL) == []


@pytest.mark.parametrize(
    "word",
    ["pci=nomsi", "pci=realloc,off", "acpi=off", "nosmp", "ip=none", "mem=512M", "nomodule",
     "amdgpu.ip_block_mask=0x1", "ttm.pages_limit=1000", "amdgpu.dpm=0",
     "amdgpu.vramlimit=2048", "vfio-pci.ids=10de:1,1002:7480"],
)  # fmt: skip
def test_words_that_take_something(tmp_path: Path, word: str) -> None:
    (what,) = told(tmp_path, word)
    assert word.rpartition("=")[2] in what


def test_options_of_other_drivers_do_not_matter(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/modprobe.d/a.conf": "options i915 enable_guc=0\n"})
    assert told(tmp_path, "amd_iommu=off") == []


def test_an_option_that_the_driver_does_not_have(tmp_path: Path) -> None:
    driver = {"parmtype": ["dpm:int", "runpm:int"]}
    make_tree(tmp_path, kernel_files({"kernel/amdgpu.ko.xz": driver}))
    assert told(tmp_path, "amdgpu.runpm=0") == []
    (what,) = told(tmp_path, "amdgpu.runpn=0")
    assert what == "amdgpu has no option runpn: the kernel ignores it"


def test_sizes() -> None:
    assert [size_of(text) for text in ("512M", "2G", "1024", "x")] == [512 << 20, 2 << 30, 1024, 0]
