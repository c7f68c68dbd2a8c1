# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's driver: one version throughout, new enough for CUDA, open modules for Blackwell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.proof.libraries.driver_rules import prove_driver
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import Hardware
from tests.fixtures.elf import make_elf, make_module
from tests.unit.proof.trees import KERNEL, Link, facts, faults, make_tree, subject, warnings

LIB = "/usr/lib/x86_64-linux-gnu"
BLACKWELL = ("10de:2b85", "GeForce RTX 5090", "sm_120")
ADA = ("10de:26b9", "L40S", "sm_89")
Files = Mapping[str, bytes | str | Link]


def driver(
    version: str,
    *,
    module: str = "",
    firmware: str = "",
    licence: str = "Dual MIT/GPL",
    name: str = "nvidia",
) -> dict[str, bytes | str | Link]:
    """The parts of a driver as the packages lay them out, some of other versions."""
    firmware, module = firmware or version, module or version
    info = {"version": module, "license": licence}
    return {
        f"{LIB}/libcuda.so.{version}": make_elf(soname="libcuda.so.1"),
        f"{LIB}/libcuda.so.1": Link(f"libcuda.so.{version}"),
        f"{LIB}/libnvidia-ml.so.{version}": make_elf(soname="libnvidia-ml.so.1"),
        f"/usr/lib/firmware/nvidia/{firmware}/gsp_ga10x.bin": b"firmware",
        "/usr/lib/firmware/nvidia/ga102/gsp/gsp.bin": b"nouveau's",
        f"/usr/lib/modules/{KERNEL}/updates/dkms/{name}.ko": make_module(info),
    }


def proved(
    tmp_path: Path,
    files: Files,
    card: tuple[str, str, str] | None = BLACKWELL,
    cuda: str = "12.8",
    wheels: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Finding]:
    """What the rules find."""
    expected = Expectations(cuda=(cuda,) if cuda else ())
    root = make_tree(tmp_path, files)
    cards = [card] if card else []
    asked = subject(root, hardware=cards, expectations=expected, wheels=wheels or {})
    return list(prove_driver(asked))


def test_nobody_asks_without_a_card_and_cuda(tmp_path: Path) -> None:
    assert proved(tmp_path, driver("550.1"), None, "") == []
    assert proved(tmp_path / "2", {}, ADA, "") == [], "a card that nouveau drives"


def test_a_driver_that_fits(tmp_path: Path) -> None:
    found = proved(tmp_path, driver("580.126.20"))
    assert (faults(found), warnings(found)) == ([], [])
    assert facts(found) == [
        "driver 580.126.20 supports CUDA 12.8, which needs 570.26",
        "all parts of the driver have version 580.126.20: libcuda, libnvidia-ml, GSP firmware, "
        "nvidia.ko",
    ]


@pytest.mark.parametrize(
    "parts",
    [driver("570.86.15", module="570.124.06"), driver("570.86.15", firmware="570.124.06")],
    ids=["module", "firmware"],
)
def test_mixed_driver_versions(parts: Files, tmp_path: Path) -> None:
    (fault,) = faults(proved(tmp_path, parts))
    assert fault.startswith("mixed driver versions: ")
    assert "570.86.15" in fault
    assert "570.124.06" in fault


def test_two_versions_of_the_libraries(tmp_path: Path) -> None:
    two = driver("570.86.15") | {f"{LIB}/libnvidia-ml.so.550.163.01": make_elf()}
    assert "libnvidia-ml 550.163.01" in " ".join(faults(proved(tmp_path, two)))


def test_driver_550_on_sm_120(tmp_path: Path) -> None:
    assert faults(proved(tmp_path, driver("550.163.01"))) == [
        "driver 550.163.01 does not support sm_120, which needs branch 570 or newer",
        "driver 550.163.01 does not support CUDA 12.8, which needs 570.26",
    ]


def test_driver_550_on_ada_has_limits(tmp_path: Path) -> None:
    debian = driver("550.163.01", name="nvidia-current-open")
    found = proved(tmp_path, debian, ADA)
    assert faults(found) == []
    assert "minor version compatibility" in warnings(found)[0]
    assert warnings(proved(tmp_path, debian, ADA, "12.4")) == []
    assert faults(proved(tmp_path, debian, ADA, "13.0")) == [
        "driver 550.163.01 does not support CUDA 13.0, which needs 580.65.06"
    ]


def test_the_proprietary_module_on_blackwell(tmp_path: Path) -> None:
    closed = driver("570.124.06", licence="NVIDIA")
    assert faults(proved(tmp_path, closed)) == [
        "nvidia.ko is the proprietary module: sm_120 needs the open one"
    ]
    assert faults(proved(tmp_path, closed, ADA)) == []


def test_cards_before_turing(tmp_path: Path) -> None:
    """A Tesla P40 needs the closed modules, and those of branch 580 at the latest."""
    p40 = ("10de:1b38", "Tesla P40", "sm_61")
    [said] = faults(proved(tmp_path / "open", driver("580.126.20"), p40))
    assert said == "nvidia.ko is the open module, which does not drive sm_61"
    closed = driver("580.126.20", licence="NVIDIA")
    assert faults(proved(tmp_path / "closed", closed, p40)) == []
    [said] = faults(proved(tmp_path / "new", driver("590.44.01", licence="NVIDIA"), p40))
    assert "branch 580 is the last" in said


def test_a_driver_before_the_card(tmp_path: Path) -> None:
    nvl = ("10de:233b", "H200 NVL", "sm_90")
    said = faults(proved(tmp_path / "old", driver("550.163.01"), nvl))
    assert "driver 550.163.01 does not support 10de:233b (H200 NVL)" in said
    assert faults(proved(tmp_path / "new", driver("580.126.20"), nvl)) == []
    late = ("10de:2d04", "GeForce RTX 5060 Ti", "sm_120")
    said = faults(proved(tmp_path / "late", driver("570.124.06"), late))
    assert said == ["driver 570.124.06 does not support 10de:2d04 (GeForce RTX 5060 Ti)"]
    said = faults(proved(tmp_path / "older", driver("550.163.01"), late))
    assert not any("10de:2d04" in each for each in said)  # told of the generation
    assert any("does not support sm_120" in each for each in said)


def test_a_card_whose_first_driver_nobody_knows(tmp_path: Path) -> None:
    """Nothing is proved of it, and the proof says so."""
    known = find_chip("10de:233b")
    assert known is not None
    nvl = Hardware(known.pci, "H200 NVL", known.target, chip=replace(known, minimum={}))
    root = make_tree(tmp_path, driver("580.126.20"))
    found = list(prove_driver(subject(root, hardware=[nvl])))
    assert faults(found) == []
    assert warnings(found) == ["it is not known which driver first supports 10de:233b (H200 NVL)"]


def test_cuda_without_a_driver(tmp_path: Path) -> None:
    said = ["no NVIDIA driver: CUDA 12.8 needs libcuda.so.1"]
    assert faults(proved(tmp_path, {})) == said
    parts = driver("570.124.06")
    left = {p: content for p, content in parts.items() if "libcuda" not in p}
    assert faults(proved(tmp_path / "2", left)) == said


def test_the_cuda_of_the_wheels_counts(tmp_path: Path) -> None:
    wheels = {"/opt/vllm": {"nvidia-cuda-runtime": "13.0.48", "torch": "2.11"}}
    found = proved(tmp_path, driver("570.124.06"), ADA, wheels=wheels)
    assert faults(found) == ["driver 570.124.06 does not support CUDA 13.0, which needs 580.65.06"]


def test_a_release_that_is_not_in_the_table(tmp_path: Path) -> None:
    found = proved(tmp_path, driver("570.124.06"), cuda="12.7")
    assert facts(found)[0] == "driver 570.124.06 supports CUDA 12.7, which needs 560.28.03"
