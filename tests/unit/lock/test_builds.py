# SPDX-License-Identifier: Apache-2.0
"""Builds in a lock: the toolchain on top of all layers, headers of the kernel, source packages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError, WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.lock.builds import every_package
from imagebuilder.lock.difference import lock_differences
from imagebuilder.lock.file import load_lock, make_lock_file
from imagebuilder.lock.pool import package_path
from imagebuilder.lock.types import Lock, LockedBuild
from imagebuilder.recipe.types import Build, Overlay, Recipe, Script
from imagebuilder.supplies import fetch
from tests.fixtures.aptrepo import DAY, Deb, Plant, SourcePackage, make_archive
from tests.unit.lock.world import DATE, DEBS, Shown, World, chosen, overlay

pytestmark = pytest.mark.slow

KERNEL = (
    Deb("linux-image-7.2-amd64", "7.2-1", depends="libc6"),
    Deb("linux-image-test", "1:7.2-1", depends="linux-image-7.2-amd64"),
    Deb("linux-headers-7.2-common", "7.2-1"),
    Deb("linux-headers-7.2-amd64", "7.2-1", depends="linux-headers-7.2-common"),
    Deb("linux-headers-test", "1:7.2-1", depends="linux-headers-7.2-amd64"),
    Deb("linux-headers-7.3-amd64", "7.3-1"),
)
TOOLS = (
    Deb("gcc", "14.2", depends="libc6, libhello"),
    Deb("dpkg-dev", "1.22"),
    Deb("wants-newer", "1.0", depends="hello (>= 2.0)"),
)
WORLD = (*(deb for deb in DEBS if deb.name != "linux-image-test"), *KERNEL, *TOOLS)
GREETER = SourcePackage("greeter", "1.0", {"hello.c": "int main(void) { return 0; }\n"})
NEWER = SourcePackage("greeter", "2.0", {"hello.c": "int main(void) { return 1; }\n"})


def with_builds(layer: Overlay, *builds: Build) -> Overlay:
    """The overlay with builds."""
    return replace(layer, builds=builds)


def build(name: str, *packages: str, sources: Sequence[str] = ()) -> Build:
    """A build whose program is of no matter to a lock."""
    return Build(name, Script("builds/x", "d", Path("/x")), packages, tuple(sources))


def asked(world: World, *builds: Build, debs: Sequence[Deb] = WORLD) -> Recipe:
    """A recipe of two layers of which the first has builds; the archive has source packages."""
    sources = (GREETER, NEWER)
    make_archive(world.folder, debs, world.key, date=DATE, sources=sources)
    return world.recipe(with_builds(overlay("greet", "hello"), *builds), overlay("more", "big"))


def only(lock: Lock) -> LockedBuild:
    """The one build of a lock."""
    [found] = [build for layer in lock.layers for build in layer.builds]
    return found


def names(locked: LockedBuild) -> list[str]:
    """The packages of a build."""
    return [package.name for package in locked.packages]


def test_a_toolchain_is_on_top_of_every_layer_and_below_none(world: World) -> None:
    lock = world.lock(asked(world, build("modules", "gcc", "big", "linux-headers-test")))
    assert names(only(lock)) == [
        "gcc", "linux-headers-7.2-amd64", "linux-headers-7.2-common", "linux-headers-test",
    ]  # fmt: skip
    # `big` is of a layer that comes later, `libhello` of one below: neither is there twice.
    assert chosen(lock)["more"] == ["big 1.0"]
    assert "gcc" not in {package.name for package in lock.packages}
    assert "gcc" in {package.name for package in every_package(lock)}
    # Nothing asks for source packages: apt has not looked for their lists.
    assert not [path for path in world.server.asked if "source" in path]


def test_a_toolchain_must_not_change_the_root(world: World) -> None:
    recipe = asked(world, build("modules", "wants-newer"), debs=(*WORLD, Deb("hello", "2.0")))
    older = overlay("greet", "hello=1.0")
    recipe = replace(recipe, overlays=(replace(recipe.overlays[0], packages=older.packages),))
    with pytest.raises(InputError, match=r"needs hello 2\.0, but overlay greet has 1\.0") as caught:
        world.lock(recipe)
    assert caught.value.faults[0].where == "build modules of overlay greet"


def test_headers_of_another_kernel_are_refused(world: World) -> None:
    with pytest.raises(
        InputError, match=r"headers are for kernel 7\.3-amd64, but the image has 7\.2-amd64"
    ):
        world.lock(asked(world, build("modules", "linux-headers-7.3-amd64")))


def test_unknown_packages_of_builds_and_layers_are_told_at_once(world: World) -> None:
    recipe = asked(world, build("modules", "gcx"))
    recipe = replace(recipe, overlays=(*recipe.overlays, overlay("bad", "nothing-such")))
    with pytest.raises(InputError) as caught:
        world.lock(recipe)
    assert [fault.where for fault in caught.value.faults] == [
        "overlay bad", "build modules of overlay greet",
    ]  # fmt: skip


def test_the_source_of_a_locked_binary_has_its_version(world: World, tmp_path: Path) -> None:
    """`greeter` of the root is version 1.0, so that the newer source does not count."""
    debs = (*WORLD, Deb("greet-tool", "1.0+b1", fields={"Source": "greeter (1.0)"}))
    recipe = asked(world, build("llama", "greet-tool", sources=["greeter"]), debs=debs)
    lock = world.lock(recipe)
    source = only(lock).source_packages[0]
    assert (source.name, source.version, source.source) == ("greeter", "1.0", "test")
    assert [file.name for file in source.files] == ["greeter_1.0.dsc", "greeter_1.0.tar.gz"]
    assert [file.path for file in source.files] == [f"pool/{f.name}" for f in source.files]
    for file in source.files:
        assert digest_of_file(world.folder / file.path) == file.sha256
    make_lock_file(lock, tmp_path / "tested.lock")
    assert load_lock(tmp_path / "tested.lock") == lock


@pytest.mark.parametrize(("word", "version"), [("greeter", "2.0"), ("greeter=1.0", "1.0")])
def test_a_source_without_binary_is_the_newest_or_the_one_named(
    world: World, word: str, version: str
) -> None:
    locked = only(world.lock(asked(world, build("llama", sources=[word]))))
    assert locked.source_packages[0].version == version
    assert locked.requested_sources == (word,)
    assert "dpkg-dev" in names(locked)  # it unpacks them; nobody has to ask for it
    assert locked.requested == ()


@pytest.mark.parametrize("word", ["nowhere", "greeter=3.0"])
def test_a_source_that_is_nowhere(world: World, word: str) -> None:
    with pytest.raises(InputError, match=f"no source has the source package {word}") as caught:
        world.lock(asked(world, build("llama", sources=[word])))
    assert caught.value.faults[0].where == "build llama of overlay greet"


def test_a_fetch_gets_toolchain_and_sources_and_verifies_them(world: World) -> None:
    recipe = asked(world, build("llama", "gcc", sources=["greeter"]))
    lock = world.lock(recipe)
    world.server.plant("pool/greeter_2.0.tar.gz", Plant.GARBLED)
    with pytest.raises(WorkError, match=r"greeter=2\.0:source"):
        take(world, recipe, lock)
    world.server.mend()
    take(world, recipe, lock)
    for package in every_package(lock):
        assert digest_of_file(package_path(world.debs, package)) == package.sha256
    gone = package_path(world.debs, every_package(lock)[-1])
    assert gone.suffix == ".src"
    gone.unlink()
    with pytest.raises(InputError, match=r"1 of the locked files .*\n    greeter=2\.0:source"):
        take(world, recipe, lock, offline=True)


def take(world: World, recipe: Recipe, lock: Lock, *, offline: bool = False) -> None:
    """Fetch what the pool lacks."""
    fetch(
        lock, APT, world.mirrors, recipe.sources, world.debs, world.wheels, world.cache,
        offline=offline, progress=Shown(),
    )  # fmt: skip


def test_what_changed_in_a_build_makes_a_lock_stale(world: World) -> None:
    recipe = asked(world, build("modules", "gcc"))
    lock = world.lock(recipe)
    assert lock_differences(recipe, lock) == ()
    changed = asked(world, build("modules", "gcc", "big"))
    assert lock_differences(changed, lock) == (
        "the inputs of build modules of overlay greet changed",
    )
    renamed = asked(world, build("others", "gcc"))
    assert set(lock_differences(renamed, lock)) == {
        "build others was added to overlay greet",
        "build modules was removed from overlay greet",
    }


def test_a_new_toolchain_makes_a_newer_image_and_no_new_layer(world: World) -> None:
    recipe = asked(world, build("modules", "gcc"))
    first = world.lock(recipe)
    newer = [replace(deb, version="14.3") if deb.name == "gcc" else deb for deb in WORLD]
    make_archive(world.folder, newer, world.key, date=DATE + DAY)
    second = world.lock(recipe, first)
    assert [layer.epoch for layer in second.layers] == [layer.epoch for layer in first.layers]
    assert (first.epoch, second.epoch) == (DATE, DATE + DAY)
    again = world.lock(recipe, second)
    assert again == second


def test_a_toolchain_is_kept_while_the_mirror_has_it(world: World) -> None:
    recipe = asked(world, build("modules", "gcc"))
    first = world.lock(recipe)
    make_archive(world.folder, (*WORLD, Deb("gcc", "15.1")), world.key, date=DATE + DAY)
    kept = only(world.lock(recipe, first, keep=True))
    assert re.search(r"gcc=14\.2", kept.packages[0].nevra)
    assert only(world.lock(recipe, first)).packages[0].version == "15.1"
