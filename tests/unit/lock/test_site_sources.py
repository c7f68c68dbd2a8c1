# SPDX-License-Identifier: Apache-2.0
"""A vendor's repository at another place: locked, told, recorded; and every way it can fail.

The archive is the fixture of NVIDIA's, which like the real one has no dists/.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.image.assemble import list_sources
from imagebuilder.lock.difference import lock_differences
from imagebuilder.lock.file import load_lock, make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.recipe.types import Overlay, Recipe, Source
from imagebuilder.supplies import fetch
from tests.fixtures.aptrepo import ArchiveServer, SigningKey, served, sign_release
from tests.fixtures.vendor import KEY_FILE, Vendor, make_vendor
from tests.fixtures.vendor_nvidia import nvidia
from tests.fixtures.vendor_others import amd, intel
from tests.unit.lock.world import Shown, World, accepting, days_ago

pytestmark = pytest.mark.slow

OLD, VERSION = "570.211.01", "580.126.20"
DRIVER = ("nvidia-driver-cuda", "firmware-nvidia-gsp", "nvidia-kernel-support")
BECAUSE = "fixture of imagebuilder in the place of NVIDIA CUDA, not the vendor's software"


@dataclass(frozen=True)
class Shop:
    """A stand-in's archive, served; `vendor` is what it has."""

    folder: Path
    server: ArchiveServer
    vendor: Vendor
    key: SigningKey

    @property
    def source(self) -> Source:
        return Source(
            "nvidia", ("/",), (), self.folder / KEY_FILE, uri=self.server.uri,
            fingerprints=(self.key.fingerprint,),
            pin_packages=("nvidia-*", "libnvidia-*", "libcuda1", "firmware-nvidia-gsp"),
            pin_priority=600, instead=self.vendor.because,
        )  # fmt: skip

    def at(self, version: str) -> Source:
        """The source, with its driver pinned at a version."""
        return replace(self.source, pin_version=f"{version}-1")

    def recipe(self, world: World, source: Source | None = None, version: str = VERSION) -> Recipe:
        """A recipe that takes a driver of `version` from there."""
        words = tuple(f"{name}={version}-1" for name in DRIVER)
        sources = (source or self.at(version),)
        return world.recipe(Overlay("gpu", Path("/overlays/gpu"), packages=words, sources=sources))


@pytest.fixture(scope="session")
def two_drivers() -> Vendor:
    """The stand-in with two driver versions, as the vendor's has many."""
    old, new = nvidia(OLD), nvidia(VERSION)
    return replace(new, debs=(*old.debs, *new.debs))


@pytest.fixture(scope="session")
def stock(
    two_drivers: Vendor,
    keys: tuple[SigningKey, SigningKey],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The archive, made once."""
    folder = tmp_path_factory.mktemp("stock")
    make_vendor(folder, two_drivers, keys[0])
    return folder


@pytest.fixture
def shop(
    two_drivers: Vendor, stock: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> Iterator[Shop]:
    """The archive, to be changed at will."""
    folder = tmp_path / "vendor"
    shutil.copytree(stock, folder)
    with served(folder) as server:
        yield Shop(folder, server, two_drivers, keys[0])


def pooled(world: World, recipe: Recipe, lock: Lock) -> Shown:
    """Fetch what `lock` lacks; the bar it showed."""
    shown = Shown()
    fetch(
        lock, APT, world.mirrors, recipe.sources, world.debs, world.wheels, world.cache,
        offline=False, progress=shown,
    )  # fmt: skip
    return shown


def test_one_driver_version_is_taken_whole_from_an_archive_without_dists(
    world: World, shop: Shop
) -> None:
    for version in (OLD, VERSION):
        recipe = shop.recipe(world, version=version)
        lock = world.lock(recipe)
        driver = lock.layer("gpu").packages
        assert {package.version for package in driver} == {f"{version}-1"}
        assert {package.source for package in driver} == {"nvidia"}
        assert {*DRIVER, "libcuda1", "libnvidia-ml1"} <= {package.name for package in driver}
        assert driver[0].path == f"firmware-nvidia-gsp_{version}-1_amd64.deb"
        assert pooled(world, recipe, lock).count > 0


@pytest.mark.parametrize(
    ("vendor", "asked"),
    [
        (amd(), ("hip-runtime-amd", "hipblas", "rocblas", "amd-smi-lib", "rocminfo")),
        (intel(), ("libze-intel-gpu1", "libze1", "intel-opencl-icd", "intel-ocloc", "intel-gsc")),
    ],
    ids=lambda value: value.source if isinstance(value, Vendor) else "",
)
def test_the_stand_ins_of_other_vendors(
    vendor: Vendor, asked: tuple[str, ...], world: World, tmp_path: Path
) -> None:
    certificate = make_vendor(tmp_path / "other", vendor, world.key)
    source = Source(
        vendor.source, (vendor.suite,), ("main",), certificate,
        uri=(tmp_path / "other").as_uri(), fingerprints=(world.key.fingerprint,), pin_priority=600,
        instead=vendor.because,
    )  # fmt: skip
    recipe = world.recipe(Overlay("x", Path("/overlays/x"), packages=asked, sources=(source,)))
    assert set(asked) <= {package.name for package in world.lock(recipe).layer("x").packages}


def test_an_archive_of_this_hosts_files(world: World, shop: Shop) -> None:
    recipe = shop.recipe(world, replace(shop.source, uri=shop.folder.as_uri()))
    lock = world.lock(recipe)
    assert pooled(world, recipe, lock).count == sum(package.size for package in lock.packages)


def test_the_reason_is_told_at_every_lock_and_is_in_lock_and_manifest(
    world: World, shop: Shop, tmp_path: Path
) -> None:
    lock = world.lock(shop.recipe(world))
    told = f"note: source nvidia is not the vendor's: {BECAUSE}"
    assert world.notes.count(told) == 1
    world.lock(shop.recipe(world), lock, keep=True)
    assert world.notes.count(told) == 2
    make_lock_file(lock, tmp_path / "tested.lock")
    read = load_lock(tmp_path / "tested.lock")
    assert [source.instead for source in read.sources] == ["", BECAUSE]
    assert [source.instead for source in list_sources(read)] == ["", BECAUSE]


def test_the_vendors_own_place_is_not_told(world: World, shop: Shop) -> None:
    world.lock(shop.recipe(world, replace(shop.source, instead="")))
    assert not [note for note in world.notes if "is not the vendor's" in note]


def test_a_lock_of_a_stand_in_is_stale_for_the_vendors_own(world: World, shop: Shop) -> None:
    """Or else an image of the real profile would quietly have a fixture in it."""
    lock = world.lock(shop.recipe(world))
    assert lock_differences(shop.recipe(world), lock) == ()
    own = replace(shop.source, uri="https://vendor.example.org/apt", instead="")
    assert "source nvidia changed" in lock_differences(shop.recipe(world, own), lock)[0]


def test_what_is_locked_and_in_the_pool_needs_no_vendor(world: World, shop: Shop) -> None:
    recipe = shop.recipe(world)
    lock = world.lock(recipe)
    pooled(world, recipe, lock)
    shutil.rmtree(shop.folder)
    asked = len(shop.server.asked)
    assert pooled(world, recipe, lock).total == 0
    assert len(shop.server.asked) == asked


def test_a_vendor_that_is_down_is_told_with_what_is_missing(world: World, shop: Shop) -> None:
    recipe = shop.recipe(world)
    lock = world.lock(recipe)
    down = replace(shop.source, uri="http://localhost:9")
    moved = shop.recipe(world, down)
    with pytest.raises(HostError, match="the vendor is not reachable") as caught:
        world.lock(moved)
    assert caught.value.faults[0].where == "source nvidia"
    assert "sources: {nvidia: {uri: ADDRESS" in caught.value.faults[0].hint
    with pytest.raises(HostError, match="and 8 more: not in the pool, and the vendor") as caught:
        pooled(world, moved, lock)
    assert caught.value.faults[0].where == "source nvidia"


def test_a_vendors_release_that_ended(world: World, shop: Shop) -> None:
    ended = days_ago(3)
    make_vendor(shop.folder, shop.vendor, shop.key, valid_until=ended)
    with pytest.raises(
        InputError, match=r"source nvidia: Release of / expired 3 days ago"
    ) as caught:
        world.lock(shop.recipe(world))
    assert "in the site file, expired-release: {nvidia: " in caught.value.faults[0].hint
    assert "at the source in its overlay" in caught.value.faults[0].hint
    world.lock(shop.recipe(world, accepting(shop.source, 30)))
    assert any("Release of / expired 3 days ago" in note for note in world.notes)


def test_what_a_stranger_has_signed(
    world: World, shop: Shop, keys: tuple[SigningKey, SigningKey]
) -> None:
    (shop.folder / "InRelease").unlink()
    sign_release(shop.folder, keys[1])
    with pytest.raises(WorkError, match="signature of a Release file is invalid") as caught:
        world.lock(shop.recipe(world))
    assert caught.value.faults[0].where == "source nvidia"
    assert shop.key.fingerprint in caught.value.faults[0].hint


def test_a_version_that_the_vendor_no_longer_has(world: World, shop: Shop) -> None:
    with pytest.raises(InputError, match=r"nvidia-driver-cuda at version 575\.57") as caught:
        world.lock(shop.recipe(world, version="575.57.08"))
    assert f"the sources have {VERSION}-1, {OLD}-1" in caught.value.faults[0].hint
