# SPDX-License-Identifier: Apache-2.0
"""A build's identity, its place in the plan, what is fetched for it, and why DKMS failed."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.families.apt.family import APT
from imagebuilder.image.assemble import make_build
from imagebuilder.image.sbom import SbomSubject, render_sbom
from imagebuilder.lock.builds import build_requests, every_package
from imagebuilder.lock.types import (
    LockedBuild,
    LockedFile,
    LockedPackage,
    LockedPython,
    LockedSourcePackage,
    LockedWheel,
)
from imagebuilder.plan import make_links, make_plan
from imagebuilder.recipe.types import Build, Script
from imagebuilder.steps.build import BuildStep
from imagebuilder.steps.dkms import last_error
from imagebuilder.supplies import needed
from tests.images import IMAGE
from tests.unit.plan.world import World, make_world

GCC = LockedPackage("gcc", "14.2", "amd64", "a" * 64, 10, "pool/gcc.deb", "debian")
DSC = LockedFile("ggml_0.27.dsc", "b" * 64, 3, "pool/ggml_0.27.dsc")
GGML = LockedSourcePackage("ggml", "0.27", (DSC,), "debian")
NVCC = LockedWheel("nvcc", "12.8", "nvcc-12.8-py3-none-any.whl", "c" * 64, 5)
WHEELS = LockedPython("/opt/imagebuilder/wheels", "r", "3.13", (NVCC,))
LOCKED = LockedBuild("modules", ("gcc",), ("ggml",), (GCC,), (GGML,), WHEELS)
SCRIPT = Script("builds/modules", "d" * 64, Path("/overlays/gpu/builds/modules"))
CASE = {
    "overlays": {
        "gpu": {"packages": {"driver": "570"}, "prune": ["/usr/share/x"]},
        "app": {"packages": {"app": "1"}, "files": {"/etc/app": "x"}},
    },
}


def with_build(locked: LockedBuild = LOCKED, script: Script = SCRIPT) -> World:
    """A profile whose first overlay has a build."""
    world = make_world(CASE)
    gpu, app = world.recipe.overlays
    build = Build("modules", script, ("gcc",), ("ggml",), env=(("TARGET", "sm_89"),))
    recipe = replace(world.recipe, overlays=(replace(gpu, builds=(build,)), app))
    base, first, last = world.lock.layers
    layers = (base, replace(first, builds=(locked,)), last)
    return World(recipe, replace(world.lock, layers=layers))


def step_of(world: World) -> BuildStep:
    """The build of the profile."""
    links, _ = make_links(world.recipe, world.lock)
    [step] = [link.step for link in links if isinstance(link.step, BuildStep)]
    return step


def digests(world: World) -> dict[str, str]:
    """The digest of each layer, by title."""
    return {link.step.title: link.digest for link in make_links(world.recipe, world.lock)[0]}


def test_builds_come_after_all_packages_and_before_anything_is_removed() -> None:
    titles = [link.step.title for link in make_links(*vars(with_build()).values())[0]]
    assert titles == [
        "base debian-forky", "packages gpu", "packages app", "build gpu modules", "initrd",
        "prune", "configure app", "finalise",
    ]  # fmt: skip


def test_what_the_initrd_is_made_from_is_built_before_it_and_nothing_else_is() -> None:
    world = with_build()
    gpu, app = world.recipe.overlays
    base, first, last = world.lock.layers
    nic = replace(world.recipe, overlays=(replace(gpu, initrd=True), app))
    titles = [link.step.title for link in make_links(nic, world.lock)[0]]
    assert titles[:5] == [
        "base debian-forky", "packages gpu", "build gpu modules", "initrd", "packages app",
    ]  # fmt: skip
    later = replace(
        world.recipe,
        overlays=(replace(gpu, builds=(), initrd=True), replace(app, builds=gpu.builds)),
    )
    lock = replace(
        world.lock, layers=(base, replace(first, builds=()), replace(last, builds=(LOCKED,)))
    )
    titles = [link.step.title for link in make_links(later, lock)[0]]
    assert titles[:5] == [
        "base debian-forky", "packages gpu", "initrd", "packages app", "build app modules",
    ]  # fmt: skip
    assert [request.layers for request in build_requests(nic)] == [2]
    assert [request.layers for request in build_requests(later)] == [3]


@pytest.mark.parametrize(
    "changed",
    [
        replace(LOCKED, packages=(replace(GCC, version="14.3"),)),
        replace(LOCKED, source_packages=(replace(GGML, files=(replace(DSC, sha256="e" * 64),)),)),
        replace(LOCKED, python=replace(WHEELS, wheels=(replace(NVCC, sha256="f" * 64),))),
    ],
    ids=["tool", "source", "wheel"],
)
def test_a_layer_is_named_by_what_it_was_built_from(changed: LockedBuild) -> None:
    before, after = digests(with_build()), digests(with_build(changed))
    same = {title for title in before if before[title] == after[title]}
    assert same == {"base debian-forky", "packages gpu", "packages app"}


def test_a_layer_is_named_by_its_program_and_environment() -> None:
    step = step_of(with_build())
    assert step.inputs()["script"] == f"builds/modules {'d' * 64}"
    assert step.inputs()["environment"] == {"TARGET": "sm_89"}
    other = step_of(with_build(script=replace(SCRIPT, digest="0" * 64)))
    assert step.inputs() != other.inputs()


def test_only_what_is_to_be_built_is_fetched() -> None:
    world = with_build()
    names = {p.sha256: p.name for p in every_package(world.lock)}

    def fetched(layers: Container[str]) -> list[str]:
        wanted = needed(make_plan(world.recipe, world.lock, layers=layers))
        return [name for sha256, name in names.items() if sha256 in wanted]

    assert {*fetched(())} >= {"gcc", "ggml", "driver"}
    made = digests(world)
    gone = made[step_of(world).title]
    assert fetched(made.values()) == []
    kept = {d for t, d in made.items() if t.startswith(("base", "packages", "initrd"))}
    assert fetched(kept) == ["gcc", "ggml"]
    assert gone not in kept


def test_the_manifest_tells_what_was_built_from_and_gc_keeps_it() -> None:
    world = with_build()
    [(layer, [locked])] = [(x.overlay, x.builds) for x in world.lock.layers if x.builds]
    build = make_build(locked, layer)
    assert (build.name, build.layer) == ("modules", "gpu")
    assert replace(IMAGE, builds=(build,)).inputs == {GCC.sha256, DSC.sha256, NVCC.sha256}
    assert IMAGE.inputs == set()  # images of before have no builds


def test_the_sbom_tells_tools_and_sources_from_what_the_image_contains() -> None:
    subject = SbomSubject("demo", "1", "d" * 64, 0, APT, "debian", "forky")
    text = render_sbom(subject, [replace(GCC, name="driver", sha256="9" * 64)], builds=[LOCKED])
    document = json.loads(text)
    names = {entry["SPDXID"]: entry["name"] for entry in document["packages"]}
    told = {
        (names.get(r["spdxElementId"], ""), r["relationshipType"], names[r["relatedSpdxElement"]])
        for r in document["relationships"]
    }
    assert told == {
        ("", "DESCRIBES", "demo"),
        ("demo", "CONTAINS", "driver"),
        ("gcc", "BUILD_TOOL_OF", "demo"),
        ("nvcc", "BUILD_TOOL_OF", "demo"),
        ("demo", "GENERATED_FROM", "ggml"),
    }


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "  CC [M]  nv-pci.o\n"
            "nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'\n"
            "  237 |     r = pci_resize_resource(pci_dev, 1, size);\n"
            "make[3]: *** [Makefile.build:217: nv-pci.o] Error 1\n"
            "make: *** [Makefile:115: modules] Error 2\n",
            "nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'",
        ),
        (
            'ERROR: modpost: "screen_info" [nvidia.ko] undefined!\nmake: *** [modpost] Error 1\n',
            'ERROR: modpost: "screen_info" [nvidia.ko] undefined!',
        ),
        ("/bin/sh: 1: make: not found\nmake: *** [all] Error 127\n", "make: *** [all] Error 127"),
        ("  CC [M]  a.o\n  LD [M]  b.o\n\n", "LD [M]  b.o"),
        ("", "make.log is empty"),
    ],
)
def test_the_last_error_says_what_is_wrong(tmp_path: Path, log: str, reason: str) -> None:
    (tmp_path / "make.log").write_text(log)
    assert last_error(tmp_path / "make.log") == reason
