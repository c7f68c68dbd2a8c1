# SPDX-License-Identifier: Apache-2.0
"""A recipe whose devices, targets, backends and ports contradict each other is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.agreement import check_versions
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from imagebuilder.recipe.types import Base, Boot, Build, Hardware, Overlay, Recipe, Script
from tests.unit.recipe.test_targets import NAVI_31, faults_of, recipe_of

BASE = Base("b", "debian", "trixie", "amd64", "mmdebstrap", "apt", (), "linux-image-amd64", ())
BUILD = Build("driver", Script("build", "", Path("build")))
CARD = "hardware: [{{pci: '1002:7480', name: RX 7600 XT, target: {}}}]\n"


def test_a_device_with_the_target_of_another(tmp_path: Path) -> None:
    said = faults_of("rx7600xt", tmp_path, "gfx_target: gfx1100", CARD.format("gfx1100"))
    assert said == (
        "recipes/p.yaml:4:57: hardware[0].target: 1002:7480 is Radeon RX 7600 XT, "
        "Radeon RX 7600, Radeon RX 7700S, Radeon PRO W7600, which has the target gfx1102, "
        "not gfx1100\n  hint: correct one of them"
    )


def test_code_for_a_card_that_the_recipe_does_not_have(tmp_path: Path) -> None:
    said = faults_of("rx7600xt", tmp_path, "gfx_target: gfx1100")
    assert said == (
        "recipes/p.yaml:3:20: vars.gfx_target: no device of the recipe has the target gfx1100; "
        'its devices have "gfx1102"\n  hint: correct the target, or the devices under `hardware:`'
    )


def test_the_target_may_be_left_to_the_pci_id(tmp_path: Path) -> None:
    card = "hardware: [{pci: '1002:7480', name: RX 7600 XT}]\n"
    assert "gfx1101" in faults_of("rx7600xt", tmp_path, "gfx_target: gfx1101", card)


def test_a_card_that_nobody_knows_is_taken_at_its_word(tmp_path: Path) -> None:
    card = "hardware: [{pci: '1002:ffff', name: unknown, assume: a sample of the vendor's}]\n"
    assert faults_of("rx7600xt", tmp_path, "slim_firmware: false", card) == ""
    other = tmp_path / "other"
    other.mkdir()
    assert faults_of("rx7600xt", other, "gfx_target: gfx1100", NAVI_31) == ""


@pytest.mark.parametrize(("profile", "backend"), [("a770", "hip"), ("ryzen-ai-max", "cuda")])
def test_a_backend_for_another_vendors_card(profile: str, backend: str, tmp_path: Path) -> None:
    said = faults_of(profile, tmp_path, f"llama_backends: [vulkan, {backend}]")
    what = f"the backend {backend} cannot compute on any device of the recipe"
    assert f"vars.llama_backends: {what}" in said


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (
            "llama_host: 0.0.0.0, llama_port: 22",
            "vars.llama_port: the overlay ssh already listens on 22/tcp",
        ),
        (
            "llama_host: 0.0.0.0, llama_rpc_server: true, llama_rpc_port: 8080",
            "vars.llama_rpc_port: the overlay llama-cpp already listens on 8080/tcp",
        ),
    ],
)  # fmt: skip
def test_two_programs_on_one_port(variables: str, place: str, tmp_path: Path) -> None:
    assert place in faults_of("generic", tmp_path, variables)


def with_npu(*builds: Build) -> Recipe:
    overlay = Overlay("npu", Path("npu"), builds=builds)
    npu = Hardware("1022:17f0", "NPU")
    return Recipe("web", "", BASE, (overlay,), {}, (npu,), Boot("nfs", (), ()))


def test_a_kernel_before_the_driver_of_a_device() -> None:
    with pytest.raises(InputError, match=r"web\.yaml: hardware: .* 6\.14 .* is 6\.12\.48-1"):
        check_versions(with_npu(), {BASE.kernel: "6.12.48-1"})


@pytest.mark.parametrize("version", ["6.14~rc7-1~exp1", "1:7.2.4-1", ""])
def test_a_kernel_that_has_the_driver(version: str) -> None:
    check_versions(with_npu(), {BASE.kernel: version})


def test_a_driver_that_an_overlay_builds_may_be_newer_than_the_kernel() -> None:
    check_versions(with_npu(BUILD), {BASE.kernel: "6.12.48-1"})


def with_card(pci: str, *backends: str) -> Recipe:
    """A recipe for a card, with an engine that computes with these backends."""
    engine = ExpectedEngine("llama.cpp", backends)
    overlay = Overlay("x", Path(), builds=(BUILD,), expectations=Expectations(engines=(engine,)))
    device = Hardware(pci, "card")
    return Recipe("web", "", BASE, (overlay,), {}, (device,), Boot("nfs", (), ()))


def test_a_mesa_before_the_card() -> None:
    old = {"mesa-vulkan-drivers": "24.2.8-1"}
    with pytest.raises(InputError, match=r"RX 9070 XT.* needs Mesa 25\.0 or newer.* is 24\.2\.8-1"):
        check_versions(with_card("1002:7550", "vulkan"), old)
    check_versions(with_card("1002:7550", "hip"), old)
    check_versions(with_card("1002:7550", "vulkan"), {"mesa-vulkan-drivers": "25.0.7-2"})


def test_a_driver_of_nvidia_before_the_card() -> None:
    with pytest.raises(InputError, match=r"needs NVIDIA's driver 570 or newer.* is 550\.163"):
        check_versions(with_card("10de:2f04", "cuda"), {"libcuda1": "550.163.01-2"})
    check_versions(with_card("10de:2f04", "cuda"), {"libcuda1": "580.126.20-1"})
    check_versions(with_card("10de:26b9", "cuda"), {"libcuda1": "550.163.01-2"})


def test_a_driver_of_nvidia_that_dropped_the_card() -> None:
    words = r"Tesla P40 needs NVIDIA's driver 580 or older, but libcuda1 is 595\.99"
    with pytest.raises(InputError, match=words):
        check_versions(with_card("10de:1b38", "cuda"), {"libcuda1": "595.99.02-1"})
    check_versions(with_card("10de:1b38", "cuda"), {"libcuda1": "580.178.04-1"})
    check_versions(with_card("10de:1eb8", "cuda"), {"libcuda1": "595.99.02-1"})


def test_a_compute_runtime_of_intel_before_the_card() -> None:
    words = r"Arc B580 needs Intel's compute runtime 25\.31 or newer.* is 23\.43\.27642"
    with pytest.raises(InputError, match=words):
        check_versions(with_card("8086:e20b"), {"libze-intel-gpu1": "23.43.27642.40-1ubuntu3"})
    check_versions(with_card("8086:e20b"), {"libze-intel-gpu1": "26.27.39122.14-1"})
    check_versions(with_card("8086:e20b"), {})


MI300X = "hardware: [{card: Instinct MI300X}]\n"


def test_vulkan_is_refused_where_the_driver_refuses_the_card(tmp_path: Path) -> None:
    given = "gfx_target: gfx942, amdgpu_compute: vulkan, llama_backends: [vulkan]"
    said = faults_of("rx7600xt", tmp_path, given, MI300X)
    assert (
        "vars.llama_backends: the backend vulkan cannot compute on any device of the recipe" in said
    )
    assert "vars.amdgpu_compute: vulkan cannot compute on any device of the recipe" in said
    assert "Instinct MI300X: RADV drives chips with graphics" in said
    assert 'the devices support "hip", "opencl"' in said


def test_an_overlay_for_another_vendors_card(tmp_path: Path) -> None:
    card = "hardware: [{card: Radeon RX 7600 XT}]\n"
    said = faults_of("a770", tmp_path, "intel_target: dg2", card)
    assert "level-zero cannot compute on any device of the recipe" in said


@pytest.mark.parametrize(
    ("device", "what", "hint"),
    [
        ("{card: Radeon RX 7600XT}", 'no card named "Radeon RX 7600XT"', "Radeon RX 7600 XT"),
        ("{card: Voodoo 5}", 'no card named "Voodoo 5"', "hardware list"),
        ("{pci: '1002:7570'}", "no known card has the PCI id", "1002:7550 (Radeon RX 9070"),
        (
            "{pci: '1002:ffff', name: Radeon RX 9070}",
            "no known card has the PCI id 1002:ffff",
            "did you mean 1002:7550 (Radeon RX 9070 XT)?",
        ),
        ("{name: Radeon}", "names no card", "`card:`"),
        ("{pci: '1002:7550', card: Radeon RX 9070}", "names its card twice", "either"),
        (
            "{pci: '1002:7480', assume: it ran last year}",
            "assume: 1002:7480 is known: it is Radeon RX 7600 XT",
            "remove `assume:`",
        ),
    ],
)
def test_a_device_that_is_not_known_is_refused(
    device: str, what: str, hint: str, tmp_path: Path
) -> None:
    said = faults_of("rx7600xt", tmp_path, "llama_port: 8081", f"hardware: [{device}]\n")
    assert what in said
    assert hint in said
    assert said.count("hint:") == 1  # one mistake, one fault


def test_a_card_by_its_name(tmp_path: Path) -> None:
    card = "hardware: [{card: radeon rx 7600 xt}]\n"
    assert faults_of("rx7600xt", tmp_path, "llama_port: 8081", card) == ""


TWO_RADEONS = "hardware: [{card: Radeon RX 7600 XT}, {card: Radeon RX 7900 XTX}]\n"


def test_cards_of_different_targets_in_one_image(tmp_path: Path) -> None:
    given = "gfx_target: [gfx1102, gfx1100]"
    recipe = recipe_of("rx7600xt", tmp_path, given, TWO_RADEONS)
    rocm = next(overlay for overlay in recipe.overlays if overlay.name == "amdgpu-rocm")
    assert rocm.slim.code == ("gfx1102", "gfx1100")
    assert {one.target for one in rocm.expectations.code} == {"gfx1102", "gfx1100"}
    [settings] = [file for file in rocm.files if file.target == "/etc/default/amdgpu-rocm"]
    assert b"GFX_TARGET=gfx1102 gfx1100\n" in (settings.content or b"")


def test_each_target_of_a_list_is_judged(tmp_path: Path) -> None:
    given = "gfx_target: [gfx1102, gfx1100, gfx1151]"
    said = faults_of("rx7600xt", tmp_path, given, TWO_RADEONS)
    assert "vars.gfx_target: ROCm 6.4 of Debian has no code for gfx1151" in said
    assert "no device of the recipe has the target gfx1151" in said
    assert "gfx1100, but" not in said
    other = tmp_path / "other"
    other.mkdir()
    assert "needs at least 1 item" in faults_of("rx7600xt", other, "gfx_target: []")
