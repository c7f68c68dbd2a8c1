# SPDX-License-Identifier: Apache-2.0
"""The step by value: what of a recipe it is made of, and where it stands in a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imagebuilder.errors import InputError
from imagebuilder.plan import make_plan
from imagebuilder.recipe.types import Hardware, Overlay, Recipe, Slim
from imagebuilder.steps.slim import slim_step
from tests.unit.plan.world import make_world

CARD = Hardware("1002:7480", "Radeon RX 7600 XT", "gfx1102")
STRANGE = Hardware("1002:ffff", "Radeon of 2040", "gfx2040")


def recipe(*slims: Slim, hardware: tuple[Hardware, ...] = (CARD,)) -> Recipe:
    """A recipe with an overlay for each of `slims`."""
    world = make_world({"overlays": {f"o{n}": {"packages": {f"p{n}": "1"}} for n in range(2)}})
    overlays = world.recipe.overlays
    given = [*slims, *[Slim()] * len(overlays)]
    changed: list[Overlay] = [replace(o, slim=s) for o, s in zip(overlays, given, strict=False)]
    return replace(world.recipe, overlays=tuple(changed), hardware=hardware)


def test_nothing_to_slim_is_no_step() -> None:
    assert slim_step(recipe(), 1) is None


def test_overlays_add_up() -> None:
    step = slim_step(
        recipe(Slim(code=("gfx1102",)), Slim(code=("gfx1102",), code_in=("/usr/lib/a.so",))), 1
    )
    assert step is not None
    assert step.slim == Slim(code=("gfx1102",), code_in=("/usr/lib/a.so",))
    assert step.firmware == ()


def test_firmware_is_what_the_devices_ask_for() -> None:
    step = slim_step(recipe(Slim(firmware=("amdgpu",))), 1)
    assert step is not None
    assert "amdgpu/gc_11_0_2_*.bin" in step.firmware
    assert step.firmware == tuple(sorted(set(step.firmware)))


def test_a_device_that_is_not_known_keeps_firmware_from_being_removed() -> None:
    with pytest.raises(InputError) as caught:
        slim_step(recipe(Slim(firmware=("amdgpu",)), hardware=(CARD, STRANGE)), 1)
    (fault,) = caught.value.faults
    assert "Radeon of 2040 (1002:ffff)" in fault.what
    assert fault.where == "recipes/demo.yaml"
    assert "hardware/NAME.yaml" in fault.hint
    assert slim_step(recipe(Slim(code=("gfx2040",)), hardware=(STRANGE,)), 1) is not None


def test_the_step_is_behind_packages_and_before_configuration() -> None:
    world = make_world(
        {"overlays": {"a": {"packages": {"p": "1"}, "files": {"/etc/a": "x"}, "prune": ["/usr/x"]}}}
    )
    (overlay,) = world.recipe.overlays
    slimmed = replace(overlay, slim=Slim(modules=("kernel/sound",)))
    plan = make_plan(replace(world.recipe, overlays=(slimmed,)), world.lock, layers=frozenset())
    titles = [planned.step.title for planned in plan.steps]
    assert titles[-4:] == ["prune", "slim", "configure a", "finalise"]


@pytest.mark.parametrize(
    "changed",
    [
        Slim(code=("gfx1101",), code_in=("/a",), firmware=("amdgpu",)),
        Slim(code=("gfx1102",), code_in=("/b",), firmware=("amdgpu",)),
        Slim(code=("gfx1102",), code_in=("/a",)),
        Slim(code=("gfx1102",), code_in=("/a",), firmware=("amdgpu",), modules=("x",)),
        Slim(code=("gfx1102",), code_in=("/a",), firmware=("amdgpu",), unlinked=("/x",)),
    ],
)
def test_each_part_names_the_layer(changed: Slim) -> None:
    one = slim_step(recipe(Slim(code=("gfx1102",), code_in=("/a",), firmware=("amdgpu",))), 1)
    two = slim_step(recipe(changed), 1)
    assert one is not None
    assert two is not None
    assert one.inputs() != two.inputs()
