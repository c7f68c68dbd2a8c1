# SPDX-License-Identifier: Apache-2.0
"""What names the layers of a profile with every kind of step.

A digest here changes only with a change that is to rebuild every image; then its commit says so.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from imagebuilder.lock.types import LockedBuild, LockedFile, LockedSourcePackage
from imagebuilder.plan import make_plan
from imagebuilder.recipe.types import Build, Modules, Playbook, Script, Slim
from tests.unit.plan.world import World, make_layer, make_world

CASE = {
    "packages": {"libc6": "2.43", "linux-image-amd64": "7.0"},
    "cmdline": ["quiet"],
    "overlays": {
        "boot": {"initrd": True, "packages": {"dracut": "111"}, "files": {"/etc/udev/a": "a"}},
        "gpu": {
            "packages": {"rocm": "7.1"},
            "files": {"/etc/gpu": "g"},
            "scripts": {"scripts/setup": "true"},
            "python": {"/opt/app": ["app==1"]},
            "enable": ["gpu.service"],
            "prune": ["/usr/share/x"],
            "listens": ["22/tcp"],
        },
    },
}
DIGESTS = {
    "base debian-forky": "5cd7be8453323403",
    "packages boot": "c59704f70525d6de",
    "initrd": "a786ddd96f6502f5",
    "packages gpu": "95e96f11e09c541a",
    "build gpu modules": "7bcc55aa013f8a1d",
    "prune": "66e85706461cac6e",
    "python gpu /opt/app": "34e6536357700837",
    "slim": "387b6447b56ed8c2",
    "configure boot": "2db4038d7e570b79",
    "configure gpu": "99971d510b6f9ab7",
    "ansible gpu site.yml": "57d735a3d0e85108",
    "finalise": "380fb2b1247c8cf9",
}


def everything() -> World:
    """A profile with every kind of step."""
    world = make_world(CASE)
    boot, gpu = world.recipe.overlays
    script = Script("builds/modules", "d" * 64, Path("modules"))
    gpu = replace(
        gpu,
        builds=(Build("modules", script, ("gcc",), ("ggml",), env=(("TARGET", "gfx1102"),)),),
        modules=Modules(load=("amdgpu",)),
        slim=Slim(code=("gfx1102",), code_in=("/usr/lib/x",), unlinked=("/usr/lib/y",)),
        playbooks=(Playbook("site.yml", Path("plays"), {"site.yml": "e" * 64}, {"port": 22}),),
    )
    source = LockedSourcePackage(
        "ggml", "1-1", (LockedFile("ggml_1-1.dsc", "c" * 64, 1, "g/ggml_1-1.dsc"),), "debian"
    )
    tools = make_layer("", {"packages": {"gcc": "15"}}, 0).packages
    built = LockedBuild("modules", ("gcc",), ("ggml",), tools, (source,))
    base, first, last = world.lock.layers
    layers = (base, first, replace(last, builds=(built,)))
    recipe = replace(world.recipe, overlays=(boot, gpu))
    return World(recipe, replace(world.lock, layers=layers))


def test_no_layer_has_another_name() -> None:
    world = everything()
    plan = make_plan(world.recipe, world.lock, layers=())
    assert {step.step.title: step.digest[:16] for step in plan.steps} == DIGESTS
    assert plan.version == "20260921141320-0d35daca"


def test_the_version_of_an_engine_names_the_layer() -> None:
    world = everything()
    base = replace(world.recipe.base, engine="debootstrap")
    plan = make_plan(replace(world.recipe, base=base), world.lock, layers=())
    assert plan.steps[0].digest[:16] == "f627745536b4008f"
