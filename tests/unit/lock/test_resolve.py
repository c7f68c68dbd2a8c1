# SPDX-License-Identifier: Apache-2.0
"""Locks of a small real archive: what is chosen, and every way it can go wrong."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import FullError, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.lock.difference import lock_differences
from imagebuilder.lock.file import parse_lock, render_lock
from imagebuilder.recipe.types import Source
from imagebuilder.resolve import make_lock
from tests.fixtures.aptrepo import Deb, Plant, SigningKey, make_archive, served
from tests.unit.lock.world import (
    DATE,
    DEBS,
    HELLO,
    World,
    accepting,
    chosen,
    days_ago,
    overlay,
)

pytestmark = pytest.mark.slow

BASE = ["apt 3.0", "base-files 14", "libc6 2.41-1", "linux-image-test 1:7.2-1"]


def test_layers_add_to_those_below(world: World) -> None:
    recipe = world.recipe(overlay("greet", "hello"), overlay("docs", "hello-doc", "libhello"))
    lock = world.lock(recipe)
    assert chosen(lock) == {
        "": BASE,
        "greet": ["hello 1.0", "libhello 1.0"],
        "docs": ["hello-doc 1.0"],
    }
    assert lock.layer("").requested == ("linux-image-test",)
    assert lock.layer("docs").requested == ("hello-doc", "libhello")
    kernel = lock.packages[3]
    assert (kernel.path, kernel.source) == ("pool/linux-image-test_7.2-1_all.deb", "test")
    assert kernel.size == (world.folder / kernel.path).stat().st_size


def test_a_suite_without_packages_is_in_the_lock_and_checked_for_its_end(
    world: World, tmp_path: Path
) -> None:
    """apt keeps no empty index: the suite is known by its Release alone, and may be expired."""
    make_archive(tmp_path / "empty", [], world.key, date=DATE, suite="security")
    with served(tmp_path / "empty") as server:
        recipe = world.recipe()
        extra = replace(world.source, id="security", suites=("security",), mirror="security")
        recipe = replace(recipe, base=replace(recipe.base, sources=(world.source, extra)))
        mirrors = {**world.mirrors, "security": server.uri}
        lock = make_lock(recipe, mirrors, world.cache, previous=None)
        assert [(s.id, s.suite) for s in lock.sources] == [
            ("test", "test"),
            ("security", "security"),
        ]
        assert lock_differences(recipe, lock) == ()
        make_archive(
            tmp_path / "empty", [], world.key, date=DATE, suite="security", valid_until=DATE
        )
        with pytest.raises(InputError, match="Release of security expired"):
            make_lock(recipe, mirrors, world.cache, previous=None)


# An apt whose VERB ends in a way that says nothing of packages and mirrors.
AILING = """\
#!/bin/sh
case " $* " in *" {verb} "*) {end} ;; esac
exec {real} "$@"
"""
ENDS = {
    "echo 'E: Write error - write (28: No space left on device)' >&2; exit 100": FullError,
    "echo 'E: Write error - write (5: Input/output error)' >&2; exit 100": WorkError,
    "kill -KILL $$": WorkError,
}


@pytest.mark.parametrize("verb", ["update", "install"])
@pytest.mark.parametrize(("end", "kind"), ENDS.items(), ids=["full", "unreadable", "killed"])
def test_what_the_host_did_to_apt_is_not_blamed_on_the_recipe(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    end: str,
    kind: type[ImagebuilderError],
) -> None:
    fake = tmp_path / "bin/apt-get"
    fake.parent.mkdir()
    fake.write_text(AILING.format(verb=verb, end=end, real=shutil.which("apt-get")))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(ImagebuilderError, match="apt-get failed") as raised:
        world.lock(world.recipe())
    assert raised.type is kind


def test_no_host_of_a_mirror_is_in_the_lock(world: World) -> None:
    assert world.server.uri not in repr(world.lock(world.recipe()))


def test_apt_sees_nothing_of_the_host_but_how_to_reach_a_mirror(world: World) -> None:
    world.lock(world.recipe())
    config = next(world.cache.glob("apt*/*/apt.conf")).read_text()
    assert not re.search(r'"/etc/apt/(?!auth\.conf)', config)


def test_unknown_packages_are_all_named_with_the_nearest(world: World) -> None:
    recipe = world.recipe(overlay("greet", "helo"), overlay("docs", "hello", "zzz"))
    with pytest.raises(InputError) as caught:
        world.lock(recipe)
    faults = caught.value.faults
    assert [(fault.where, fault.what) for fault in faults] == [
        ("overlay greet", "no source has a package named helo"),
        ("overlay docs", "no source has a package named zzz"),
    ]
    assert "the nearest names are: hello" in faults[0].hint


@pytest.mark.parametrize("name", ["-y", "hello-", "a b", "hello/test", "Hello", "../x"])
def test_a_request_that_is_no_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(InputError, match="is not the name of a package"):
        world.lock(world.recipe(overlay("greet", name)))


def test_a_conflict_names_both_overlays(world: World) -> None:
    recipe = world.recipe(overlay("greet", "hello"), overlay("other", "rival"))
    words = "overlay other: would remove hello, which overlay greet added .requested: rival."
    with pytest.raises(InputError, match=words):
        world.lock(recipe)


def test_a_conflict_with_a_dependency_says_so(world: World) -> None:
    world.archive([*DEBS, Deb("enemy", conflicts="libhello")])
    recipe = world.recipe(overlay("greet", "hello"), overlay("other", "enemy"))
    with pytest.raises(InputError, match="libhello, which overlay greet added as a dependency"):
        world.lock(recipe)


def test_a_version_that_no_source_has(world: World) -> None:
    with pytest.raises(InputError, match="no source has hello at version 9"):
        world.lock(world.recipe(overlay("greet", "hello=9")))


def test_locks_at_once_are_safe(world: World) -> None:
    recipe = world.recipe(overlay("greet", "hello"))
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(world.lock, recipe) for _ in range(3)]
        locks = [future.result() for future in running]
    assert locks[0] == locks[1] == locks[2]


def test_the_installed_size_is_recorded_where_the_archive_tells_it(world: World) -> None:
    told = Deb("libhello", "1.0", fields={"Installed-Size": "12"})
    world.archive([told if deb.name == "libhello" else deb for deb in DEBS], date=DATE + 1)
    lock = world.lock(world.recipe(overlay("greet", "hello")))
    sizes = {package.name: package.installed for package in lock.packages}
    assert (sizes["libhello"], sizes["hello"]) == (12 * 1024, 0)
    assert parse_lock(render_lock(lock), "tested.lock").packages[-1].installed in sizes.values()


def test_a_cache_that_is_not_ours_to_write(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot write: Not a directory"):
        make_lock(world.recipe(), world.mirrors, tmp_path / "file" / "cache", previous=None)


def test_what_apt_cannot_satisfy_is_told_in_its_words(world: World) -> None:
    with pytest.raises(InputError, match=r"broken : Depends: nowhere \(>= 3\)"):
        world.lock(world.recipe(overlay("greet", "broken")))


def test_an_expired_release_is_refused_with_its_end_and_a_way_out(world: World) -> None:
    world.archive(valid_until=days_ago(15))
    with pytest.raises(InputError) as caught:
        world.lock(world.recipe())
    text = str(caught.value)
    assert "source test: Release of test expired 15 days ago" in text
    assert "expired-release" in text
    assert "accept-days: 45" in text


def test_an_expired_release_is_accepted_with_a_reason(world: World) -> None:
    world.archive(valid_until=days_ago(15))
    lock = world.lock(world.recipe(source=accepting(world.source, 20)))
    assert lock.sources[0].expired_because == "the mirror here stands still"
    note = next(line for line in world.notes if line.startswith("note:"))
    assert "Release of test expired 15 days ago" in note
    assert "accepted for up to 20 days because the mirror here stands still" in note


def test_a_consent_that_is_not_needed_is_not_recorded(world: World) -> None:
    world.archive(date=days_ago(1))
    lock = world.lock(world.recipe(source=accepting(world.source, 20)))
    assert lock.sources[0].expired_because == ""
    assert not any(line.startswith("note:") for line in world.notes)


def test_a_consent_has_its_limit(world: World) -> None:
    world.archive(valid_until=days_ago(21))
    with pytest.raises(InputError, match=r"expired 21 days ago .* but only 20 days are accepted"):
        world.lock(world.recipe(source=accepting(world.source, 20)))


def test_an_archive_signed_by_a_stranger_is_refused(
    world: World, keys: tuple[SigningKey, SigningKey]
) -> None:
    world.lock(world.recipe())
    world.archive(date=DATE + 1, key=keys[1])
    with pytest.raises(WorkError, match="signature of a Release file is invalid"):
        world.lock(world.recipe())


def test_package_lists_that_lie_are_refused(world: World) -> None:
    world.server.plant("dists/test/main/binary-amd64/Packages", Plant.GARBLED)
    with pytest.raises(WorkError, match="do not match its Release file"):
        world.lock(world.recipe())


def test_a_suite_that_is_not_there(world: World) -> None:
    with pytest.raises(InputError, match="does not have this suite"):
        world.lock(world.recipe(source=replace(world.source, suites=("nowhere",))))


def test_a_component_that_is_not_there(world: World) -> None:
    with pytest.raises(InputError, match="lacks a component"):
        world.lock(world.recipe(source=replace(world.source, components=("main", "maim"))))


def test_a_mirror_that_is_down_is_the_hosts_fault(world: World) -> None:
    world.lock(world.recipe())
    with served(world.folder) as gone:
        mirrors = {"test": gone.uri}
    with pytest.raises(HostError, match="mirror is not reachable") as caught:
        make_lock(world.recipe(), mirrors, world.cache, previous=None)
    assert "source test" in str(caught.value)


def test_a_keyring_that_the_host_lacks(world: World, tmp_path: Path) -> None:
    source = replace(world.source, key=tmp_path / "none.gpg")
    with pytest.raises(HostError, match=r"this host does not have the keyring .*none\.gpg"):
        world.lock(world.recipe(source=source))


def test_a_pinned_vendor_wins_where_it_may(
    world: World, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    vendor = tmp_path / "vendor"
    debs = [Deb("libhello", "0.9"), Deb("hello-doc", "0.9"), Deb("tool", "5")]
    make_archive(vendor, debs, keys[1], suite="v", origin="Vendor", date=DATE + 9)
    with served(vendor) as server:
        source = Source(
            "vendor", ("v",), ("main",), keys[1].certificate, uri=server.uri,
            fingerprints=(keys[1].fingerprint,), pin_packages=("hello-doc",), pin_priority=1001,
        )  # fmt: skip
        extra = replace(overlay("docs", "hello-doc", "tool", "libhello"), sources=(source,))
        lock = world.lock(world.recipe(extra))
    found = {package.name: (package.version, package.source) for package in lock.packages}
    assert found["hello-doc"] == ("0.9", "vendor")
    assert found["libhello"] == ("1.0", "test")
    assert found["tool"] == ("5", "vendor")
    assert lock.layer("docs").epoch == DATE + 9
    assert lock.layer("").epoch == DATE


def test_a_vendor_key_with_another_fingerprint(
    world: World, keys: tuple[SigningKey, SigningKey]
) -> None:
    source = Source(
        "vendor", ("v",), ("main",), keys[1].certificate, uri="http://vendor.example",
        fingerprints=(keys[0].fingerprint,),
    )  # fmt: skip
    with pytest.raises(InputError, match=f"has {keys[1].fingerprint}, but the overlay pins"):
        world.lock(world.recipe(replace(overlay("docs"), sources=(source,))))


def test_keep_changes_only_what_it_must(world: World) -> None:
    greet = overlay("greet", "hello")
    first = world.lock(world.recipe(greet))
    world.archive([*DEBS, HELLO], date=DATE + 5)
    more = world.recipe(greet, overlay("docs", "hello-doc"))
    assert "hello 1.0" in chosen(world.lock(more, first, keep=True))["greet"]
    assert "hello 2.0" in chosen(world.lock(more, first))["greet"]


def test_keep_takes_the_newest_where_the_old_is_gone(world: World) -> None:
    greet = overlay("greet", "hello")
    first = world.lock(world.recipe(greet))
    world.archive([*(deb for deb in DEBS if deb.name != "hello"), HELLO], date=DATE + 5)
    assert "hello 2.0" in chosen(world.lock(world.recipe(greet), first, keep=True))["greet"]


def test_epochs_stay_where_nothing_changed(world: World) -> None:
    greet, docs = overlay("greet", "hello"), overlay("docs", "hello-doc")
    first = world.lock(world.recipe(greet, docs))
    assert [layer.epoch for layer in first.layers] == [DATE, DATE, DATE]
    world.archive([*DEBS, HELLO], date=DATE + 5)
    second = world.lock(world.recipe(greet, docs), first)
    assert [layer.epoch for layer in second.layers] == [DATE, DATE + 5, DATE + 5]
    assert second.epoch == DATE + 5
    again = world.lock(world.recipe(greet, docs), second)
    assert [layer.epoch for layer in again.layers] == [DATE, DATE + 5, DATE + 5]


def test_epochs_are_shared_with_siblings(world: World) -> None:
    sibling = world.lock(world.recipe(overlay("greet", "hello")))
    world.archive(date=DATE + 5)
    lock = world.lock(world.recipe(overlay("docs", "hello-doc")), siblings=[sibling])
    assert [layer.epoch for layer in lock.layers] == [DATE, DATE + 5]


def test_the_same_mirror_gives_the_same_lock(world: World) -> None:
    recipe = world.recipe(overlay("greet", "hello"))
    first = world.lock(recipe)
    shutil.rmtree(world.cache)
    assert world.lock(recipe) == first


def test_a_snapshot_says_that_its_end_is_not_checked(world: World) -> None:
    world.archive(valid_until=days_ago(400))
    source = replace(world.source, snapshot="20250101T000000Z")
    shutil.copytree(world.folder, world.folder / "20250101T000000Z", ignore=lambda *_: ["pool"])
    (world.folder / "20250101T000000Z/pool").symlink_to("../pool")
    mirrors = {"test": f"{world.server.uri}/{{snapshot}}"}
    recipe = world.recipe(source=source)
    lock = make_lock(recipe, mirrors, world.cache, previous=None, progress=world.notes.append)
    assert lock.sources[0].snapshot == "20250101T000000Z"
    assert lock.sources[0].expired_because == ""
    assert any("snapshot of 20250101T000000Z" in note for note in world.notes)
