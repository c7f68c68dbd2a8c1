# SPDX-License-Identifier: Apache-2.0
"""A target that no source has code for is a fault of the recipe, which says what has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from tests.unit.recipe.conftest import Project

SHIPPED = Path(__file__).parents[3]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJt6Tr9NVdSbpOyNCbLStsmOHO3rBIAZTTIPpDFoXy0x a@b"
NAVI_31 = "hardware: [{pci: '1002:744c', name: Navi 31, target: gfx1100}]\n"
DEBIAN = ["803", "900", "906", "908", "90a", "1010", "1030", "1100", "1101", "1102"]


def recipe_of(profile: str, folder: Path, variables: str, more: str = "") -> Recipe:
    """A shipped profile, changed.  Raises InputError."""
    site = folder / "site.yaml"
    site.write_text(f"ssh-keys: ['{KEY}']\n")
    project = folder / "project"
    project.mkdir()
    shutil.copytree(SHIPPED / "recipes", project / "recipes")
    # The vendor's key is added by hand, and may be there or not.
    without_key = shutil.ignore_patterns("rocm.asc")
    shutil.copytree(SHIPPED / "overlays", project / "overlays", symlinks=True, ignore=without_key)
    (project / "recipes/p.yaml").write_text(
        f"description: A variant of {profile}\nextends: {profile}\nvars: {{{variables}}}\n{more}"
    )
    settings = Settings(project, folder / "state", folder / "cache", site)
    return load_recipe("p", settings, env={"HOME": str(folder)})


def faults_of(profile: str, folder: Path, variables: str, more: str = "") -> str:
    """What is wrong with a shipped profile, changed; "" if nothing is."""
    try:
        recipe_of(profile, folder, variables, more)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "variables",
    [
        "amdgpu_compute: vulkan, llama_backends: [vulkan]",
        "amdgpu_compute: rocm, gfx_target: gfx1100",
        "amdgpu_compute: rocm, gfx_target: gfx1100, llama_backends: [hip]",
    ],
)
def test_what_the_source_has_code_for_is_no_fault(variables: str, tmp_path: Path) -> None:
    npu = NAVI_31.replace("}]", "}, {card: XDNA 2 NPU}]")
    card = "" if "vulkan" in variables else npu
    assert faults_of("ryzen-ai-max", tmp_path, variables, card) == ""


def test_debians_rocm_has_no_code_for_gfx1151(tmp_path: Path) -> None:
    said = faults_of("ryzen-ai-max", tmp_path, "amdgpu_compute: rocm")
    supported = ", ".join(f'"gfx{number}"' for number in DEBIAN)
    assert f"ROCm 6.4 of Debian has no code for gfx1151, only for {supported}" in said
    assert "amdgpu_compute: vulkan" in said
    assert "rocm_source: amd" in said


def test_hip_of_llama_cpp_has_no_code_for_gfx1151(tmp_path: Path) -> None:
    said = faults_of("ryzen-ai-max", tmp_path, "llama_backends: [hip, vulkan]")
    assert "llama.cpp of Debian (libggml0-backend-hip) has no code for gfx1151" in said
    assert "use the backend vulkan" in said
    assert "ROCm 6.4" not in said


def test_amds_rocm_has_no_code_for_old_cards(tmp_path: Path) -> None:
    said = faults_of("rx7600xt", tmp_path, "rocm_source: amd, gfx_target: gfx803")
    assert "ROCm 7 of AMD has no code for gfx803" in said
    assert "rocm_source: debian" in said


def test_a_vendors_key_that_is_not_there_is_told_with_its_fingerprint(tmp_path: Path) -> None:
    said = faults_of("rx7600xt", tmp_path, "rocm_source: amd")
    assert "the vendor's key is missing: " in said
    assert "overlays/amdgpu-rocm/keys/rocm.asc" in said
    assert "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C" in said


def test_two_vendors_in_one_image_keep_the_vulkan_of_both(tmp_path: Path) -> None:
    cards = "hardware: [{card: Arc A770}, {card: Radeon RX 7600 XT}]\n"
    given = "gfx_target: gfx1102"
    recipe = recipe_of("a770", tmp_path, given, f"overlays: [amdgpu-rocm]\n{cards}")
    pruned = {glob for overlay in recipe.overlays for glob in overlay.prune}
    assert "/usr/share/vulkan/icd.d/[!ri]*.json" in pruned
    assert "/usr/share/vulkan/icd.d/[!ir]*.json" in pruned
    assert not {glob for glob in pruned if "[!r]" in glob or "[!i]" in glob}


@pytest.mark.parametrize(
    ("profile", "backend"),
    [("generic", "blas"), ("rx7600xt", "hip"), ("rx7600xt", "vulkan"), ("l40s", "cuda")],
)
def test_what_the_health_check_of_llama_cpp_runs_is_there_for_every_card(
    tmp_path: Path, profile: str, backend: str
) -> None:
    given, more = f"llama_backends: [{backend}]", ""
    if backend == "cuda":
        given += ", nvidia_source: vendor"
        more = "base: debian-forky\noverlays: [llama-cpp]\n"
    recipe = recipe_of(profile, tmp_path, given, more)
    (overlay,) = (each for each in recipe.overlays if each.name == "llama-cpp")
    checks = {file for file in overlay.files if "computes-llama-cpp" in file.target}
    assert bool(checks) is (backend != "blas")
    assert ("llama.cpp-tests" in overlay.packages) is bool(checks)


def test_vendors_that_need_different_bases_exclude_each_other(tmp_path: Path) -> None:
    given = "cuda_target: sm_89, nvidia_source: vendor"
    cards = "hardware: [{card: Arc A770}, {card: L40S}]\n"
    said = faults_of("a770", tmp_path, given, f"overlays: [nvidia-cuda-12.8]\n{cards}")
    assert "which has no Level Zero driver for Intel graphics" in said
    assert "make a profile for the cards of each vendor" in said


def test_a_target_is_judged_only_where_it_is_used(project: Project) -> None:
    project.write(
        {
            "overlays/o/overlay.yaml": (
                "description: Code for some targets\n"
                "vars: {card: {type: string, default: sm_75, description: Which}, "
                "used: {type: boolean, default: true, description: Whether}}\n"
                "targets:\n"
                "  - {target: '{{ card }}', source: This, supported: [sm_89, sm_120], "
                "instead: take another, when: used}\n"
            ),
            "recipes/p.yaml": "description: A profile\nbase: debian-trixie\noverlays: [o]\n",
        }
    )
    said = project.faults()
    assert said.startswith("recipes/p.yaml:3:12: overlays[0]: ")
    assert 'This has no code for sm_75, only for "sm_89", "sm_120"' in said
    assert "take another" in said
    project.write(
        {
            "recipes/p.yaml": (
                "description: A profile\nbase: debian-trixie\noverlays: [o]\nvars: {used: false}\n"
            )
        }
    )
    assert project.load().description == "A profile"
