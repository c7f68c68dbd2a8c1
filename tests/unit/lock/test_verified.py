# SPDX-License-Identifier: Apache-2.0
"""What leaves the pool: nothing whose content is not the lock's."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.families.apt.repository import make_repository
from imagebuilder.families.protocol import Packages
from imagebuilder.lock.builds import source_files
from imagebuilder.lock.types import Lock, LockedBuild, LockedFile, LockedSourcePackage, LockedWheel
from imagebuilder.lock.verified import Pool
from imagebuilder.recipe.types import Recipe
from imagebuilder.supplies import fetch
from tests.fixtures.damage import flip_byte
from tests.unit.lock.world import Shown, World, hello_recipe


@pytest.fixture
def recipe(world: World) -> Recipe:
    return hello_recipe(world)


@pytest.fixture
def lock(world: World, recipe: Recipe, hello_lock: Lock) -> Lock:
    """A lock whose packages are in the pool."""
    get(world, recipe, hello_lock)
    return hello_lock


def get(
    world: World, recipe: Recipe, lock: Lock, doubted: frozenset[str] = frozenset()
) -> frozenset[str]:
    return fetch(
        lock, APT, world.mirrors, recipe.sources, world.debs, world.wheels, world.cache,
        offline=False, progress=Shown(), doubted=doubted,
    )  # fmt: skip


def test_an_altered_package_does_not_leave_the_pool(
    world: World, lock: Lock, tmp_path: Path
) -> None:
    big = next(package for package in lock.packages if package.name == "big")
    flip_byte(world.debs / f"{big.sha256}.deb")
    with (
        Pool(world.debs, world.wheels) as pool,
        pytest.raises(WorkError, match=r"big=1\.0:all in the package pool does not match the lock"),
    ):
        make_repository(Packages("test", "amd64", lock.packages, (), 1), pool, tmp_path / "to")
    assert not list((tmp_path / "to").rglob("*.deb"))


def test_an_altered_package_is_fetched_again_and_no_other(
    world: World, recipe: Recipe, lock: Lock
) -> None:
    big = next(package for package in lock.packages if package.name == "big")
    path = world.debs / f"{big.sha256}.deb"
    right = path.read_bytes()
    flip_byte(path)
    asked = len(world.server.asked)
    again: list[str] = []

    def fetch_again(files: object) -> None:
        assert isinstance(files, list)
        again.extend(file.nevra for file in files)
        get(world, recipe, lock, frozenset(file.sha256 for file in files))

    with Pool(world.debs, world.wheels, refetch=fetch_again) as pool:
        pool.expect(lock.packages)
        paths = pool.take(lock.packages)
    assert paths == [world.debs / f"{package.sha256}.deb" for package in lock.packages]
    assert path.read_bytes() == right
    assert again == ["big=1.0:all"]
    assert world.server.asked[asked:] == ["pool/big_1.0_all.deb"]


def test_what_was_doubted_and_is_right_is_not_fetched(
    world: World, recipe: Recipe, lock: Lock
) -> None:
    assert get(world, recipe, lock, frozenset(p.sha256 for p in lock.packages)) == frozenset()


def test_what_was_just_fetched_is_not_read_again(world: World, lock: Lock) -> None:
    big = next(package for package in lock.packages if package.name == "big")
    flip_byte(world.debs / f"{big.sha256}.deb")
    with Pool(world.debs, world.wheels, fetched=frozenset({big.sha256})) as pool:
        assert pool.take([big])


def test_wheels_and_sources_are_verified_too(world: World, lock: Lock) -> None:
    package = lock.packages[0]
    content = (world.debs / f"{package.sha256}.deb").read_bytes()
    wheel = LockedWheel("pure", "1", "pure-1-py3-none-any.whl", package.sha256, package.size)
    kept = world.wheels / wheel.sha256 / wheel.filename
    kept.parent.mkdir(parents=True)
    file = LockedFile("greeter_1.dsc", package.sha256, package.size, "pool/greeter_1.dsc")
    source = LockedSourcePackage("greeter", "1", (file,), "test")
    build = LockedBuild("greet", (), (), (), (source,))
    for path, taken in (
        (kept, wheel),
        (world.debs / f"{file.sha256}.src", source_files(build)[0]),
    ):
        path.write_bytes(content)
        with Pool(world.debs, world.wheels) as pool:
            assert pool.take([taken]) == [path]
        flip_byte(path)
        with (
            Pool(world.debs, world.wheels) as pool,
            pytest.raises(WorkError, match="in the package pool does not match the lock"),
        ):
            pool.take([taken])
