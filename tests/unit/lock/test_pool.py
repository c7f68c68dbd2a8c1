# SPDX-License-Identifier: Apache-2.0
"""The pool: complete or absent, whatever the mirror does."""

from __future__ import annotations

import hashlib
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.families.apt.deb import control
from imagebuilder.families.apt.family import APT
from imagebuilder.lock import patience
from imagebuilder.lock.patience import PATIENCE, Patience
from imagebuilder.lock.pool import UNFINISHED
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.recipe.types import Recipe
from imagebuilder.supplies import fetch
from tests.fixtures.aptrepo import Plant, served
from tests.fixtures.full import file_size_limit
from tests.unit.lock.world import Shown, World, hello_recipe


@pytest.fixture
def recipe(world: World) -> Recipe:
    return hello_recipe(world)


@pytest.fixture
def lock(hello_lock: Lock) -> Lock:
    return hello_lock


def fill(
    world: World,
    recipe: Recipe,
    lock: Lock,
    *,
    offline: bool = False,
    mirror: str = "",
    patience: Patience = PATIENCE,
) -> Shown:
    """Fetch into the pool; what the progress bar was told."""
    shown = Shown()
    fetch(
        lock, APT, {"test": mirror or world.server.uri}, recipe.sources, world.debs, world.wheels,
        world.cache, offline=offline, progress=shown, patience=patience,
    )  # fmt: skip
    return shown


def check_pool(world: World) -> set[str]:
    """Every file of the pool is what its name says; what is unfinished lies apart."""
    names = {path.name for path in world.debs.iterdir()} - {".lock", ".lock.turn", UNFINISHED}
    for name in names:
        content = (world.debs / name).read_bytes()
        assert name == f"{hashlib.sha256(content).hexdigest()}.deb"
    return names


def wanted(lock: Lock) -> set[str]:
    return {f"{package.sha256}.deb" for package in lock.packages}


def package_of(lock: Lock, name: str) -> LockedPackage:
    return next(package for package in lock.packages if package.name == name)


def with_package(lock: Lock, changed: LockedPackage) -> Lock:
    """`lock` with another record of one package."""
    layers = tuple(
        replace(
            layer,
            packages=tuple(changed if p.name == changed.name else p for p in layer.packages),
        )
        for layer in lock.layers
    )
    return replace(lock, layers=layers)


def test_every_locked_package_is_fetched_once(world: World, recipe: Recipe, lock: Lock) -> None:
    shown = fill(world, recipe, lock)
    assert check_pool(world) == wanted(lock)
    assert shown.ended
    assert shown.count == shown.total == sum(package.size for package in lock.packages)
    asked = len(world.server.asked)
    fill(world, recipe, lock, offline=True)
    assert len(world.server.asked) == asked


def test_offline_names_what_is_missing(world: World, recipe: Recipe, lock: Lock) -> None:
    with pytest.raises(InputError, match=r"7 of the locked files are not in the pool") as caught:
        fill(world, recipe, lock, offline=True)
    assert "linux-image-test=1:7.2-1:all" in str(caught.value)
    assert not world.debs.exists()


def test_a_package_that_is_gone(world: World, recipe: Recipe, lock: Lock) -> None:
    world.server.plant("pool/hello_1.0_all.deb", Plant.MISSING)
    with pytest.raises(WorkError, match=r"no longer has hello=1\.0:all") as caught:
        fill(world, recipe, lock)
    assert "imagebuilder lock PROFILE" in str(caught.value)
    assert check_pool(world) == wanted(lock) - {f"{package_of(lock, 'hello').sha256}.deb"}


@pytest.mark.parametrize("fault", [Plant.TRUNCATED, Plant.GARBLED])
def test_a_file_that_lies_leaves_nothing_behind(
    world: World, recipe: Recipe, lock: Lock, fault: Plant
) -> None:
    big = package_of(lock, "big")
    world.server.plant("pool/big_1.0_all.deb", fault)
    words = "expected sha256 " + big.sha256 if fault is Plant.GARBLED else "while sending"
    with pytest.raises(WorkError, match=words) as caught:
        fill(world, recipe, lock)
    assert "big=1.0:all" in str(caught.value)
    assert check_pool(world) == wanted(lock) - {f"{big.sha256}.deb"}
    world.server.mend()
    fill(world, recipe, lock)
    assert check_pool(world) == wanted(lock)


@pytest.mark.parametrize("more", [-7, 7])
def test_an_index_with_a_wrong_size_is_named(
    world: World, recipe: Recipe, lock: Lock, more: int
) -> None:
    """The file has the locked content: neither the mirror nor the network is broken."""
    big = package_of(lock, "big")
    lied = with_package(lock, replace(big, size=big.size + more))
    says = (
        rf"^source test: big=1\.0:all has {big.size} bytes, but its index says {big.size + more}\n"
    )
    for _ in range(2):
        with pytest.raises(WorkError, match=says):
            fill(world, recipe, lied)
        assert check_pool(world) == wanted(lock) - {f"{big.sha256}.deb"}
    fill(world, recipe, lock)
    assert check_pool(world) == wanted(lock)


def test_a_file_without_an_end_does_not_fill_the_disk(
    world: World, recipe: Recipe, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SLACK", 4 << 20)
    world.server.plant("pool/big_1.0_all.deb", Plant.ENDLESS)
    with pytest.raises(HostError, match=r"a server sends more than the .* that may come"):
        fill(world, recipe, lock)
    assert sum(path.stat().st_size for path in world.debs.rglob("*")) < 4 << 20
    world.server.mend()
    fill(world, recipe, lock)
    assert check_pool(world) == wanted(lock)


def test_the_password_of_a_mirror_is_no_argument(world: World, recipe: Recipe, lock: Lock) -> None:
    world.server.login = "ada:s3cret@7"
    with pytest.raises(WorkError, match="Unauthorized"):
        fill(world, recipe, lock)
    fill(world, recipe, lock, mirror=world.server.uri.replace("//", "//ada:s3cret%407@"))
    assert check_pool(world) == wanted(lock)
    assert any("apt-helper" in words for words in world.server.programs)
    assert not any("s3cret" in words for words in world.server.programs)


def test_a_mirror_that_is_down(world: World, recipe: Recipe, lock: Lock) -> None:
    with served(world.folder) as gone:
        mirror = gone.uri
    with pytest.raises(HostError, match="mirror is not reachable: http://127"):
        fill(world, recipe, lock, mirror=mirror)
    assert check_pool(world) == set()


def test_a_mirror_that_is_overloaded(world: World, recipe: Recipe, lock: Lock) -> None:
    world.server.plant("pool/hello_1.0_all.deb", Plant.UNAVAILABLE)
    with pytest.raises(HostError, match="mirror is not reachable"):
        fill(world, recipe, lock)


def test_a_damaged_file_is_noticed_and_fetched_again(
    world: World, recipe: Recipe, lock: Lock
) -> None:
    fill(world, recipe, lock)
    path = world.debs / f"{package_of(lock, 'hello').sha256}.deb"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="1 of the locked files"):
        fill(world, recipe, lock, offline=True)
    fill(world, recipe, lock)
    assert check_pool(world) == wanted(lock)


def test_fetches_at_once_are_safe(world: World, recipe: Recipe, lock: Lock) -> None:
    errors: list[BaseException] = []

    def one() -> None:
        try:
            fill(world, recipe, lock)
        except BaseException as error:  # noqa: BLE001  # told to the test
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert check_pool(world) == wanted(lock)
    assert world.server.asked.count("pool/big_1.0_all.deb") == 1


def test_no_space_is_told_before_anything_is_fetched(
    world: World, recipe: Recipe, lock: Lock
) -> None:
    huge = replace(package_of(lock, "hello"), size=10**15)
    asked = len(world.server.asked)
    with pytest.raises(HostError, match=r"no space left: 1\.0 PB needed to fetch"):
        fill(world, recipe, with_package(lock, huge))
    assert len(world.server.asked) == asked


def test_a_disk_that_fills_up_leaves_nothing_behind(
    world: World, recipe: Recipe, lock: Lock
) -> None:
    hello = package_of(lock, "hello")
    fill(world, recipe, with_package(lock, hello))
    path = world.debs / f"{hello.sha256}.deb"
    path.unlink()
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    with file_size_limit(200), pytest.raises(HostError, match=r"no space left for hello=1\.0:all"):
        fill(world, recipe, lock)
    assert check_pool(world) == wanted(lock) - {path.name}


def test_a_package_of_a_source_the_recipe_lost(world: World, recipe: Recipe, lock: Lock) -> None:
    lost = replace(package_of(lock, "hello"), source="vendor")
    with pytest.raises(WorkError, match="from source vendor, but the recipe defines no such"):
        fill(world, recipe, with_package(lock, lost))


def test_packages_of_a_local_archive_are_copied(world: World, recipe: Recipe, lock: Lock) -> None:
    fill(world, recipe, lock, mirror=f"file:{world.folder}")
    assert check_pool(world) == wanted(lock)
    assert not any(path.is_symlink() for path in world.debs.iterdir())


def test_a_control_record_is_read_once(world: World, recipe: Recipe, lock: Lock) -> None:
    fill(world, recipe, lock)
    hello = package_of(lock, "hello")
    first = control(world.debs, hello)
    assert "Depends: libhello (>= 1.0)" in first
    (world.debs / f"{hello.sha256}.deb").unlink()
    assert control(world.debs, hello) == first


def test_a_control_record_of_nothing(world: World, lock: Lock) -> None:
    world.debs.mkdir(parents=True)
    with pytest.raises(WorkError, match="not a readable package"):
        control(world.debs, package_of(lock, "hello"))
    assert list(Path(world.debs).iterdir()) == []


def test_a_control_record_that_was_altered_is_read_again(
    world: World, recipe: Recipe, lock: Lock
) -> None:
    fill(world, recipe, lock)
    hello = package_of(lock, "hello")
    first = control(world.debs, hello)
    kept = world.debs / f"{hello.sha256}.control"
    for altered in (kept.read_text().replace("libhello", "trojans2"), first, ""):
        kept.write_text(altered)
        assert control(world.debs, hello) == first
