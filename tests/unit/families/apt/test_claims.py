# SPDX-License-Identifier: Apache-2.0
"""A validly signed Release file is refused when it is not the one that was asked for."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.deb822 import ARMOUR, SIGNATURE, parse_release, parse_stanzas
from imagebuilder.families.apt.release import Release, is_requested, parse_date
from imagebuilder.families.freshness import day_of
from imagebuilder.lock.file import parse_lock, render_lock
from imagebuilder.lock.types import Lock
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import DAY, make_archive, make_flat_archive
from tests.unit.lock.world import DATE, DEBS, World, days_ago

pytestmark = pytest.mark.slow

BOOKWORM = {"Suite": "oldstable", "Codename": "bookworm"}
TRIXIE = {"Suite": "stable", "Codename": "trixie"}


def asked(world: World, suite: str, says: dict[str, str], previous: Lock | None = None) -> Lock:
    """The lock of a recipe that asks for `suite`, from a mirror whose Release file `says` this."""
    make_archive(world.folder, DEBS, world.key, date=DATE, suite=suite, says=says)
    return world.lock(world.recipe(source=replace(world.source, suites=(suite,))), previous)


def vendor(world: World, suite: str) -> Source:
    """A vendor's source at the world's archive."""
    key = world.key
    return Source(
        "vendor", (suite,), () if suite == "/" else ("main",), key.certificate,
        uri=world.server.uri, fingerprints=(key.fingerprint,),
    )  # fmt: skip


def test_another_suites_release_is_refused(world: World) -> None:
    """The bug: bookworm's Release, validly signed, in the place of trixie's."""
    with pytest.raises(WorkError) as caught:
        asked(world, "trixie", BOOKWORM)
    (fault,) = caught.value.faults
    assert fault.where == "source test"
    assert fault.what == (
        "requested trixie, but its Release file says Suite: oldstable, Codename: bookworm"
    )
    assert "use another mirror" in fault.hint


@pytest.mark.parametrize("blank", [b"\n \n", b"\n\t\n", b"\r\n\r\n", b"\nSuite: trixie\n\n"])
def test_no_change_around_the_signed_text_hides_what_it_says(world: World, blank: bytes) -> None:
    """The bug: apt takes a line with a space as the end of the armour's head, we did not."""
    make_archive(world.folder, DEBS, world.key, date=DATE, suite="trixie", says=BOOKWORM)
    release = world.folder / "dists/trixie/InRelease"
    release.write_bytes(release.read_bytes().replace(b"\n\n", blank, 1))
    with pytest.raises(WorkError, match=r"says Suite: oldstable|was changed on"):
        world.lock(world.recipe(source=replace(world.source, suites=("trixie",))))


@pytest.mark.parametrize(
    "text",
    [
        f"{ARMOUR}\nSuite: trixie\n\nSuite: sid\n{SIGNATURE}\n",
        f"{ARMOUR}\n\0\nSuite: sid\n{SIGNATURE}\n\nSuite: trixie\n",
        f"{ARMOUR}\n{SIGNATURE}\n\nSuite: trixie\n",
        f"{ARMOUR}\n\nSuite: trixie\n",
        f"{ARMOUR}\nSuite: trixie\n{SIGNATURE}",
        f"{ARMOUR}\n\n{SIGNATURE}\n",
    ],
)
def test_what_is_not_signed_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"its signed text|not signed"):
        parse_release(text)


def test_a_release_with_other_ends_of_lines_is_read(world: World) -> None:
    release = world.folder / "dists/test/InRelease"
    release.write_bytes(release.read_bytes().replace(b"\n", b"\r\n"))
    (locked,) = world.lock(world.recipe()).sources
    assert (locked.date, locked.release_suite) == (DATE, "test")


def test_a_field_of_many_lines_takes_a_time_that_grows_with_them_alone() -> None:
    lines = "\n".join([" x" * 20] * 200_000)
    begun = time.process_time()
    (stanza,) = parse_stanzas(f"Package: a\nDescription: b\n{lines}\nVersion: 1\n")
    assert time.process_time() - begun < 3
    assert stanza["Description"] == f"b\n{lines}"


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_a_record_ends_where_apt_ends_it(end: str) -> None:
    text = (
        f"Package: a\nDescription: x{end}{end}Package: b{end}SHA256: 0\nVersion: 1\n\nPackage: c\n"
    )
    assert [(each["Package"], each.get("Version")) for each in parse_stanzas(text)] == [
        ("a", "1"),
        ("c", None),
    ]


@pytest.mark.parametrize(
    ("suite", "says", "right"),
    [
        ("trixie", ("stable", "trixie"), True),
        ("stable", ("stable", "trixie"), True),
        ("trixie-security", ("stable-security", "trixie-security"), True),
        ("trixie-backports", ("stable-backports", "trixie-backports"), True),
        ("buster/updates", ("oldoldstable", "buster"), True),
        ("noble", ("noble", "noble"), True),
        ("noble-updates", ("noble-updates", "noble"), True),
        ("trixie", ("oldstable", "bookworm"), False),
        ("trixie", ("stable-security", "trixie-security"), False),
        ("trixie-security", ("stable", "trixie"), False),
        ("noble-security", ("noble", "noble"), False),
        ("noble", ("noble-security", "noble"), False),
        ("noble", ("jammy", "jammy"), False),
    ],
)
def test_suite_and_codename_both_count(
    suite: str,
    says: tuple[str, str],
    right: bool,  # noqa: FBT001  # a column
) -> None:
    source = Source("s", (suite,), ("main",), Path("/key"), mirror="debian")
    fields = {"Suite": says[0], "Codename": says[1]}
    assert is_requested(Release(source, suite, fields, "")) is right


def test_a_release_that_says_no_names_is_taken(world: World) -> None:
    lock = asked(world, "trixie", {"Suite": "", "Codename": ""})
    assert (lock.sources[0].release_suite, lock.sources[0].codename) == ("", "")


def test_testing_that_becomes_stable_is_the_same_suite(world: World) -> None:
    lock = asked(world, "trixie", {**TRIXIE, "Suite": "testing"})
    again = asked(world, "trixie", TRIXIE, lock)
    assert (again.sources[0].release_suite, again.sources[0].codename) == ("stable", "trixie")


@pytest.mark.parametrize("fresh", [False, True])
def test_stable_that_changes_its_codename_is_refused(
    world: World,
    fresh: bool,  # noqa: FBT001  # a column
) -> None:
    lock = asked(world, "stable", TRIXIE)
    if fresh:
        shutil.rmtree(world.cache)
    with pytest.raises(WorkError, match=r"Codename: forky; when it was locked, .*Codename: trixie"):
        asked(world, "stable", {**TRIXIE, "Codename": "forky"}, lock)


def test_a_vendors_other_names_are_told_and_then_kept(world: World) -> None:
    def lock(previous: Lock | None = None) -> Lock:
        recipe = world.recipe(source=vendor(world, "apt"))
        return world.lock(recipe, previous)

    make_archive(
        world.folder, DEBS, world.key, date=DATE, suite="apt", says={"Suite": "x", "Codename": "y"}
    )
    first = lock()
    assert any("requested apt, but its Release file says Suite: x" in n for n in world.notes)
    assert lock(first) == first
    make_archive(
        world.folder, DEBS, world.key, date=DATE, suite="apt", says={"Suite": "z", "Codename": "z"}
    )
    with pytest.raises(WorkError, match="when it was locked, it said Suite: x, Codename: y"):
        lock(first)


def test_a_flat_archive_has_no_name_but_a_date(world: World) -> None:
    flat = world.folder / "flat"
    flat.mkdir()
    source = replace(vendor(world, "/"), uri=f"{world.server.uri}/flat")

    def lock(date: int, previous: Lock | None = None) -> Lock:
        make_flat_archive(flat, DEBS, world.key, origin="V", label="V", date=date)
        shutil.rmtree(world.cache, ignore_errors=True)
        return world.lock(world.recipe(source=source), previous)

    first = lock(DATE)
    assert not any("asked for" in note for note in world.notes)
    with pytest.raises(WorkError, match="source vendor: requested /, but its Release file was"):
        lock(DATE - DAY, first)


def test_an_older_release_is_refused_unless_it_is_allowed(world: World) -> None:
    """The bug: a fresh cache has nothing that an old state could be compared with."""
    recipe = world.recipe()
    lock = world.lock(recipe)
    world.archive(date=DATE - 3 * DAY)
    shutil.rmtree(world.cache)
    with pytest.raises(WorkError) as caught:
        world.lock(recipe, lock)
    (fault,) = caught.value.faults
    assert fault.where == "source test"
    assert day_of(DATE - 3 * DAY) in fault.what
    assert day_of(DATE) in fault.what
    assert fault.hint.endswith("imagebuilder lock tested --allow-older")
    assert world.lock(recipe, lock, allow_older=True).sources[0].date == DATE - 3 * DAY


def test_going_back_works_with_the_newer_lists_in_the_cache(world: World) -> None:
    lock = world.lock(world.recipe())
    world.archive(date=DATE - 3 * DAY)
    assert world.lock(world.recipe(), lock).sources[0].date == DATE  # apt keeps what it has
    back = world.lock(world.recipe(), lock, allow_older=True)
    assert back.sources[0].date == DATE - 3 * DAY


def test_another_place_or_snapshot_is_not_compared(world: World) -> None:
    world.archive(date=DATE - 3 * DAY)
    lock = world.lock(world.recipe())
    moved = replace(lock.sources[0], origin="other", date=DATE)
    assert world.lock(world.recipe(), replace(lock, sources=(moved,))).sources == lock.sources
    back = replace(lock.sources[0], snapshot="20260101T000000Z", date=DATE)
    assert world.lock(world.recipe(), replace(lock, sources=(back,))).sources == lock.sources


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "Sat, 06 Sep 99999999999999999999 10:28:57 UTC",
        "Wed, 31 Dec 1969 23:59:59 UTC",
        "Fri, 31 Dec 9999 23:59:59 -0500",
    ],
)
def test_a_date_that_is_none_is_said(text: str) -> None:
    with pytest.raises(WorkError, match="no readable date"):
        parse_date(text)


def test_an_old_release_without_an_end_is_told(world: World) -> None:
    world.archive(date=days_ago(61))
    world.lock(world.recipe())
    told = [note for note in world.notes if "no update in" in note]
    assert len(told) == 1
    assert "no update in test for 61 days: " in told[0]


@pytest.mark.parametrize(("days", "ends"), [(59, None), (70, -30)])
def test_a_young_release_or_one_with_an_end_is_not(
    world: World, days: int, ends: int | None
) -> None:
    world.archive(date=days_ago(days), valid_until=ends and days_ago(ends))
    world.lock(world.recipe())
    assert not any("no update in" in note for note in world.notes)


def test_a_lock_from_before_names_were_recorded_loads_and_compares_dates(
    world: World, hello_lock: Lock
) -> None:
    from imagebuilder.digest import digest_of

    content = json.loads(render_lock(hello_lock))
    for source in content["sources"]:
        del source["release_suite"], source["codename"]
    inside = {name: value for name, value in content.items() if name not in ("schema", "digest")}
    content["digest"] = digest_of(inside)
    old = parse_lock(json.dumps(content), "old.lock")
    assert old.layers == hello_lock.layers
    assert (old.sources[0].release_suite, old.sources[0].date) == ("", DATE)
    world.archive(date=DATE - DAY)
    with pytest.raises(WorkError, match="--allow-older"):
        world.lock(world.recipe(), old)
