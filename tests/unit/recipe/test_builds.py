# SPDX-License-Identifier: Apache-2.0
"""Builds of an overlay, and the components of the distribution that an overlay adds."""

from __future__ import annotations

from tests.unit.recipe.conftest import Project

RECIPE = "base: debian-trixie\noverlays: [gpu]\nvars: {target: sm_89}\n"
OVERLAY = """\
description: An overlay that builds
vars:
  target: {type: string, description: Its target}
components:
  - contrib
  - name: non-free
    when: target == 'sm_89'
builds:
  - name: modules
    packages: ["linux-headers-{{ architecture }}", {name: nvcc, when: target == 'sm_120'}]
    source-packages: [ggml]
    run: builds/modules
    env: {TARGET: "{{ target }}"}
"""


def make(project: Project, overlay: str = OVERLAY) -> None:
    """A profile with that one overlay."""
    project.write(
        {
            "recipes/p.yaml": RECIPE,
            "overlays/gpu/overlay.yaml": overlay,
            "overlays/gpu/builds/modules": "#!/bin/sh\n",
        }
    )


def test_a_build_is_resolved_against_the_vars(project: Project) -> None:
    make(project)
    [build] = project.load().overlays[0].builds
    assert build.packages == ("linux-headers-amd64",)
    assert build.source_packages == ("ggml",)
    assert build.env == (("TARGET", "sm_89"),)
    assert build.script.source == project.root / "overlays/gpu/builds/modules"


def test_every_archive_of_the_base_gets_the_components(project: Project) -> None:
    make(project)
    sources = project.load().base.sources
    assert sources
    for source in sources:
        assert source.components[-2:] == ("contrib", "non-free")
    make(project, OVERLAY.replace("contrib", "main"))
    for source in project.load().base.sources:
        assert source.components.count("main") == 1


def test_what_a_build_sets_itself_is_not_the_overlays(project: Project) -> None:
    make(project, OVERLAY.replace("TARGET:", "KERNEL:"))
    assert "the build itself sets KERNEL" in project.faults()


def test_a_component_is_one_word(project: Project) -> None:
    make(project, OVERLAY.replace("- contrib", "- 'contrib\\nTrusted: yes'"))
    assert "components[0]" in project.faults()
