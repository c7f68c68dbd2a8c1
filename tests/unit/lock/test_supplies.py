# SPDX-License-Identifier: Apache-2.0
"""What a build takes from the pool is verified while it runs, and fetched again when wrong."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import FullError, InputError
from imagebuilder.lock.types import Lock
from imagebuilder.lock.verified import Pool
from imagebuilder.plan import Action, Plan, make_plan
from imagebuilder.settings import Settings
from imagebuilder.steps.slim import SLIMMED, SlimStep
from imagebuilder.supplies import MARGIN, build_space, check_space, supplies
from imagebuilder.ui import Ui
from tests.fixtures.damage import flip_byte
from tests.unit.lock.world import World, hello_recipe


@contextmanager
def opened(
    world: World, lock: Lock, said: io.StringIO, *, offline: bool = False
) -> Iterator[tuple[Pool, Plan]]:
    """The supplies of a build of everything."""
    recipe, top = hello_recipe(world), world.cache.parent
    plan = make_plan(recipe, lock, layers=())
    settings = Settings(project=top, state=top / "state", cache=world.cache, site=top / "site.yaml")
    given = supplies(
        recipe, lock, plan, settings, Ui(said), mirrors=world.mirrors, offline=offline
    )  # fmt: skip
    with given as pool:
        yield pool, plan


def fill_and_damage(world: World, lock: Lock, name: str) -> tuple[Path, bytes]:
    """Fill the pool and alter one package of it; where it is and what it was."""
    with opened(world, lock, io.StringIO()) as (pool, _):
        path = pool.path(next(package for package in lock.packages if package.name == name))
    right = path.read_bytes()
    flip_byte(path)
    return path, right


def test_an_altered_package_is_fetched_again_by_the_step_that_takes_it(
    world: World, hello_lock: Lock
) -> None:
    path, right = fill_and_damage(world, hello_lock, "big")
    asked, said = len(world.server.asked), io.StringIO()
    with opened(world, hello_lock, said) as (pool, plan):
        steps = {s.step.title: s.step for s in plan.steps}
        pool.take(steps["packages greet"].takes)
        assert world.server.asked[asked:] == []
        more = steps["packages more"]
        assert pool.take(more.takes) == [path]
    assert path.read_bytes() == right
    assert world.server.asked[asked:] == ["pool/big_1.0_all.deb"]
    assert "damaged in the package pool, fetching again: big=1.0:all" in said.getvalue()


def test_without_a_network_an_altered_package_is_named(world: World, hello_lock: Lock) -> None:
    fill_and_damage(world, hello_lock, "hello")
    with opened(world, hello_lock, io.StringIO(), offline=True) as (pool, plan):
        greet = next(s.step for s in plan.steps if s.step.title == "packages greet")
        with pytest.raises(InputError, match=r"1 of the locked files (?s:.*)\n    hello=1\.0:all"):
            pool.take(greet.takes)


def test_what_a_build_needs_is_told_from_the_lock(world: World, hello_lock: Lock) -> None:
    """Every installed size is 1 MB here: 7 MB, with the margin, beside what is to be fetched."""
    lock = replace_sizes(hello_lock, 10**6)
    state = world.cache.parent / "state"
    plan = make_plan(hello_recipe(world), lock, layers=())
    room = build_space(state, hello_recipe(world), lock, plan)
    assert room.fetched == sum(package.size for package in lock.packages)
    larger = replace_sizes(lock, 2 * 10**6)
    others = build_space(
        state, hello_recipe(world), larger, make_plan(hello_recipe(world), larger, layers=())
    )
    slimmed = 100 + SLIMMED if any(isinstance(s.step, SlimStep) for s in plan.steps) else 100
    assert others.built - room.built == 7 * 10**6 * slimmed * (100 + MARGIN) // 10_000
    with opened(world, lock, io.StringIO()):
        assert build_space(state, hello_recipe(world), lock, plan).fetched == 0
    built = replace(plan, steps=tuple(replace(s, action=Action.REUSE) for s in plan.steps))
    assert build_space(state, hello_recipe(world), lock, built).total == 0


def replace_sizes(lock: Lock, size: int) -> Lock:
    """The lock with another installed size of each package."""
    layers = (
        replace(layer, packages=tuple(replace(p, installed=size) for p in layer.packages))
        for layer in lock.layers
    )
    return replace(lock, layers=tuple(layers))


def test_a_build_that_cannot_fit_is_refused_with_numbers(world: World, hello_lock: Lock) -> None:
    state = world.cache.parent
    lock = replace_sizes(hello_lock, 10**15)
    plan = make_plan(hello_recipe(world), lock, layers=())
    with pytest.raises(FullError) as caught:
        check_space(state, hello_recipe(world), lock, plan)
    said = str(caught.value)
    assert re.search(
        r"no space left: [\d.]+ PB needed to fetch [\d.]+ kB and to build [\d.]+ PB, "
        r"[\d.]+ [GT]B free\n  hint: run imagebuilder gc .*--state", said
    )  # fmt: skip
    assert said.startswith(str(state))
    check_space(
        state,
        hello_recipe(world),
        hello_lock,
        make_plan(hello_recipe(world), hello_lock, layers=()),
    )


def test_the_installed_size_is_no_part_of_what_a_package_is(hello_lock: Lock) -> None:
    """Locks from before it was recorded are the same locks, and name the same layers."""
    other = replace_sizes(hello_lock, 5)
    assert other == hello_lock
