# SPDX-License-Identifier: Apache-2.0
"""Variables that slow runtimes down, replace devices, or leave out drivers of Vulkan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from imagebuilder.proof.reading.environment import Variable
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.services.devices import (
    matches,
    prove_drivers,
    prove_emulation,
    prove_hindrances,
    prove_sessions,
    prove_units,
)
from imagebuilder.proof.services.prove import prove_variables
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from tests.unit.proof.trees import Content, Link, faults, make_tree, running, subject, warnings

ICDS = "/usr/share/vulkan/icd.d"
ARC = ("8086:56a0", "Arc A770", "dg2")
RADEON = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
STRIX_HALO = ("1002:1586", "Radeon 8060S", "gfx1151")
NPU = ("1022:17f0", "XDNA 2 NPU", "")


def given(**values: str) -> dict[str, Variable]:
    return {name: Variable(value, "/etc/default/a") for name, value in values.items()}


def icd(library: str) -> str:
    return json.dumps({"ICD": {"library_path": library, "api_version": "1.4.0"}})


@pytest.mark.parametrize(
    ("name", "value", "backend", "slow"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", "cuda", True),
        ("CUDA_LAUNCH_BLOCKING", "0", "cuda", False),
        ("CUDA_LAUNCH_BLOCKING", "1", "vulkan", False),
        ("AMD_SERIALIZE_KERNEL", "3", "hip", True),
        ("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation", "vulkan", True),
        ("VK_INSTANCE_LAYERS", "VK_LAYER_MESA_device_select", "vulkan", False),
        ("RADV_DEBUG", "nodcc,syncshaders", "vulkan", True),
        ("RADV_DEBUG", "nodcc", "vulkan", False),
        ("GGML_VK_DISABLE_F16", "0", "vulkan", True),
        ("UR_L0_SERIALIZE", "1", "sycl", False),
        ("CUDA_CACHE_DISABLE", "1", "cuda", True),
        ("VLLM_TRACE_FUNCTION", "1", "cuda", True),
        ("GPU_MAX_HEAP_SIZE", "16", "hip", True),
        ("GPU_MAX_HEAP_SIZE", "100", "hip", False),
        ("GPU_MAX_HEAP_SIZE", "90", "hip", False),
        ("GPU_MAX_HEAP_SIZE", "16", "vulkan", False),
    ],
)
def test_variables_for_debugging(name: str, value: str, backend: str, slow: bool) -> None:  # noqa: FBT001
    found = prove_hindrances("a.service", [backend], given(**{name: value}), [])
    assert bool(list(found)) == slow


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "hip"),
        ("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "cuda"),
        ("GGML_VK_PREFER_HOST_MEMORY", "vulkan"),
        ("GGML_VK_ALLOW_SYSMEM_FALLBACK", "vulkan"),
    ],
)
def test_variables_for_shared_memory(name: str, backend: str) -> None:
    variables = given(**{name: "1"})
    card, graphics = (
        [chip] if (chip := find_chip(each[0])) else [] for each in (RADEON, STRIX_HALO)
    )
    assert list(prove_hindrances("a.service", [backend], variables, card))
    assert not list(prove_hindrances("a.service", [backend], variables, graphics))
    assert not list(prove_hindrances("a.service", ["sycl"], variables, card))


@pytest.mark.parametrize(
    ("cards", "slow"),
    [([STRIX_HALO], True), ([RADEON], True), ([ARC], False), ([ARC, RADEON], True), ([], True)],
)
def test_matrix_units_that_are_not_used_anyway(
    cards: list[tuple[str, str, str]],
    slow: bool,  # noqa: FBT001
) -> None:
    chips = [chip for card in cards if (chip := find_chip(card[0]))]
    variables = given(GGML_VK_DISABLE_COOPMAT="1")
    assert bool(list(prove_hindrances("a.service", ["vulkan"], variables, chips))) == slow


@pytest.mark.parametrize(
    ("cards", "told"),
    [
        ([RADEON], 1),
        ([RADEON, NPU], 1),
        ([STRIX_HALO, NPU], 0),
        ([("10de:2e12", "GB10", "sm_121")], 0),
        ([], 0),
    ],
)
def test_memory_of_the_cards(
    cards: Sequence[tuple[str, str, str]], told: int, tmp_path: Path
) -> None:
    variables = given(GGML_CUDA_ENABLE_UNIFIED_MEMORY="1")
    asked = subject(tmp_path, hardware=cards)
    found = prove_variables(asked, LoadedUnit("a.service"), ["hip"], variables)
    assert len(warnings(found)) == told


@pytest.mark.parametrize(
    ("name", "value", "backend", "emulated"),
    [
        ("XCL_EMULATION_MODE", "sw_emu", "xrt", True),
        ("XCL_EMULATION_MODE", "", "xrt", True),
        ("XCL_EMULATION_MODE", "hw_emu", "vulkan", False),
        ("RADV_FORCE_FAMILY", "gfx1102", "vulkan", True),
        ("RADV_FORCE_FAMILY", "gfx1102", "hip", False),
    ],
)
def test_variables_for_emulation(name: str, value: str, backend: str, emulated: bool) -> None:  # noqa: FBT001
    found = faults(prove_emulation("a.service", [backend], given(**{name: value})))
    assert bool(found) == emulated


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"/etc/environment": "XCL_EMULATION_MODE=hw_emu\n"}, "XCL_EMULATION_MODE=hw_emu takes"),
        ({"/etc/profile.d/npu.sh": "export XCL_EMULATION_MODE='sw_emu'\n"}, "=sw_emu takes"),
        (
            {
                "/etc/environment": "XCL_EMULATION_MODE=hw_emu\n",
                "/usr/lib/environment.d/99-environment.conf": Link("../../../etc/environment"),
            },
            "XCL_EMULATION_MODE=hw_emu takes",
        ),
        ({"/etc/environment.d/a.conf": "GGML_VK_VISIBLE_DEVICES=none\n"}, "hides every device"),
        ({"/etc/environment": "#XCL_EMULATION_MODE=hw_emu\nLANG=C.UTF-8\n"}, ""),
        ({"/etc/environment": "HIP_VISIBLE_DEVICES=-1\n"}, ""),
        ({"/etc/profile.d/a.sh": "export XCL_EMULATION_MODE\n"}, ""),
    ],
)
def test_variables_of_logins(files: Mapping[str, Content], said: str, tmp_path: Path) -> None:
    expected = Expectations(engines=(ExpectedEngine("llama.cpp", ("vulkan",)),))
    asked = subject(make_tree(tmp_path, files), hardware=[NPU], expectations=expected)
    found = faults(prove_sessions(asked))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(("card", "told"), [(NPU, 1), (ARC, 0)])
def test_emulation_for_all_services_is_told_once(
    card: tuple[str, str, str], told: int, tmp_path: Path
) -> None:
    values = {"Environment": ("XCL_EMULATION_MODE=hw_emu",)}
    units = {
        name: LoadedUnit(name, ("/etc/systemd/system/service.d/a.conf",), values)
        for name in ("a.service", "b.service", "c.socket")
    }
    startup = Startup(frozenset(), {}, units, ())
    found = faults(prove_units(running(subject(tmp_path, hardware=[card]), startup)))
    assert len(found) == told


@pytest.mark.parametrize(
    ("globs", "chosen"),
    [
        ("*intel*", True),
        ("INTEL_*", True),
        ("*_icd.json", True),
        ("intel_icd.json", True),
        ("*radeon*,intel*", True),
        ("~all~", True),
        ("intel", False),
        ("*intel", False),
        ("icd*", False),
        ("int*icd.json", False),
        ("*radeon*,*nvidia*", False),
    ],
)
def test_globs_of_the_vulkan_loader(globs: str, chosen: bool) -> None:  # noqa: FBT001
    assert matches(f"{ICDS}/intel_icd.json", globs) == chosen


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, ""),
        ({"VK_LOADER_DRIVERS_SELECT": "*radeon*,*nvidia*"}, "it leaves out intel_icd.json"),
        ({"VK_LOADER_DRIVERS_SELECT": "*intel*"}, ""),
        ({"VK_LOADER_DRIVERS_SELECT": ""}, ""),
        ({"VK_LOADER_DRIVERS_SELECT": "*lvp*"}, "it leaves out intel_icd.json"),
        ({"VK_LOADER_DRIVERS_DISABLE": "*lvp*"}, ""),
        ({"VK_LOADER_DRIVERS_DISABLE": "*"}, "it leaves out intel_icd.json"),
        (
            {"VK_LOADER_DRIVERS_SELECT": "*icd*", "VK_LOADER_DRIVERS_DISABLE": "intel*"},
            "VK_LOADER_DRIVERS_DISABLE=intel* leaves a.service",
        ),
        ({"VK_DRIVER_FILES": f"{ICDS}/lvp_icd.json"}, "VK_DRIVER_FILES"),
        ({"VK_DRIVER_FILES": f"{ICDS}/none.json:{ICDS}/intel_icd.json"}, ""),
        ({"VK_DRIVER_FILES": ICDS}, ""),
        ({"VK_ICD_FILENAMES": f"{ICDS}/radeon_icd.json"}, "VK_ICD_FILENAMES"),
        ({"VK_DRIVER_FILES": ICDS, "VK_ICD_FILENAMES": f"{ICDS}/lvp_icd.json"}, ""),
        ({"VK_LOADER_DRIVERS_SELECT": "own*", "VK_ADD_DRIVER_FILES": "/opt/own.json"}, ""),
    ],
)
def test_drivers_that_variables_leave(
    variables: Mapping[str, str], said: str, tmp_path: Path
) -> None:
    files = {
        f"{ICDS}/intel_icd.json": icd("libvulkan_intel.so"),
        f"{ICDS}/radeon_icd.json": icd("libvulkan_radeon.so"),
        f"{ICDS}/lvp_icd.json": icd("libvulkan_lvp.so"),
        "/opt/own.json": icd("own.so"),
    }
    asked = subject(make_tree(tmp_path, files), hardware=[ARC, NPU])
    found = faults(prove_drivers(asked, "a.service", given(**variables)))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(("globs", "told"), [("*radeon*", 1), ("*intel*", 0)])
def test_drivers_that_are_added_to_an_image_without(globs: str, told: int, tmp_path: Path) -> None:
    variables = given(VK_LOADER_DRIVERS_SELECT=globs)
    found = faults(prove_drivers(subject(tmp_path, hardware=[ARC]), "a.service", variables))
    assert len(found) == told
