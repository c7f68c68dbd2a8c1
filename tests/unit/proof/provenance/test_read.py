# SPDX-License-Identifier: Apache-2.0
"""Who answers for a path: a package, an overlay, a step, or nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.families.shipped import Checksum
from imagebuilder.proof.provenance.read import (
    LayerHistory,
    Placed,
    find_placed,
    trace_all,
    trace_path,
)
from imagebuilder.proof.reading.provenance import (
    CONTENT,
    METADATA,
    Compared,
    Provenance,
    Trace,
    TraceKind,
    walk_root,
)
from imagebuilder.root import Root
from tests.unit.proof.provenance.chain import (
    BASE,
    IMAGE_OF_LAYERS,
    PACKAGES,
    SITE,
    digest_of,
    records_of,
    shipped,
)

OWNER = "root:root" if os.getuid() == 0 else "me:me"
PLACED = Placed("site", 0o644, OWNER, digest_of("placed"))
BY_SITE = LayerHistory(BASE, {"/f": (PACKAGES, SITE)})
BY_PACKAGES = LayerHistory(BASE, {"/f": (PACKAGES,)})


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "f").write_text("placed")
    (tmp_path / "f").chmod(0o644)
    return Root(tmp_path)


def test_what_a_package_ships_and_nobody_touched(root: Root) -> None:
    found = trace_path("/f", records_of({"/f": shipped("placed")}, history=BY_PACKAGES), root)
    assert found == Trace("/f", TraceKind.PACKAGE, (PACKAGES,), "tool 2.0")
    assert str(found) == "package tool 2.0"


def test_a_file_that_a_step_gave_another_content(root: Root) -> None:
    found = trace_path("/f", records_of({"/f": shipped("other")}, history=BY_SITE), root)
    assert found == Trace("/f", TraceKind.CHANGED, (PACKAGES, SITE), "tool 2.0", change=CONTENT)
    assert str(found) == "content changed by configure site, shipped by package tool 2.0"


def test_a_file_that_a_step_gave_another_mode(root: Root) -> None:
    found = trace_path("/f", records_of({"/f": shipped("placed")}, history=BY_SITE), root)
    assert found
    assert (found.kind, found.change) == (TraceKind.CHANGED, METADATA)


def test_a_file_of_an_overlay_in_the_place_of_a_packages(root: Root) -> None:
    given = records_of({"/f": shipped("other")}, {"/f": PLACED}, BY_SITE)
    found = trace_path("/f", given, root)
    assert found == Trace("/f", TraceKind.OVERLAY, (PACKAGES, SITE), "tool 2.0", "site")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("other"),
        lambda path: path.chmod(0o4755),
        lambda path: (path.unlink(), path.symlink_to("elsewhere")),
    ],
    ids=["content", "mode", "link"],
)
def test_what_a_script_did_to_a_file_of_its_overlay(
    root: Root, spoil: Callable[[Path], object]
) -> None:
    spoil(root.path / "f")
    found = trace_path("/f", records_of({}, {"/f": PLACED}, BY_SITE), root)
    assert found == Trace("/f", TraceKind.STEP, (PACKAGES, SITE))


def test_a_file_of_an_overlay_that_a_later_step_wrote_again(root: Root) -> None:
    later = LayerHistory(BASE, {"/f": (SITE, "finalise")})
    found = trace_path("/f", records_of({}, {"/f": PLACED}, later), root)
    assert found
    assert str(found) == "step finalise"


def test_where_one_layer_is_known_contents_decide(root: Root) -> None:
    one = LayerHistory(f"{BASE} or {PACKAGES} or {SITE}")
    by_package = trace_path("/f", records_of({"/f": shipped("placed")}, history=one), root)
    by_overlay = trace_path("/f", records_of({}, {"/f": PLACED}, one), root)
    assert by_package
    assert by_overlay
    assert (by_package.kind, by_overlay.kind) == (TraceKind.PACKAGE, TraceKind.OVERLAY)


def test_what_packages_ship_and_the_root_lacks(root: Root) -> None:
    history = LayerHistory(BASE, {}, {"/doc": "prune"})
    ships = {"/doc/a": shipped("a"), "/man": shipped("m"), "/f": shipped("placed")}
    found = trace_all(records_of(ships, history=history), dict(walk_root(root)), root)
    assert found.who("/x") == "origin unknown"
    assert found.missing == {"prune": ("/doc/a",), "": ("/man",)}
    assert found.is_packaged("/f")
    assert not found.is_packaged("/man")


def test_what_is_known_of_the_same_checksum_is_not_hashed(root: Root) -> None:
    entries, given = dict(walk_root(root)), records_of({"/f": shipped("placed")})
    checksum = given.shipped["/f"].checksum
    assert checksum
    other = Checksum(checksum.kind, "0")
    for known, compared in (
        (Compared(), Compared({"/f": checksum})),
        (Compared(altered={"/f": checksum}), Compared(altered={"/f": checksum})),
        (Compared(altered={"/f": other}), Compared({"/f": checksum})),
    ):
        assert trace_all(given, entries, root, known=known).compared == compared
    (root.path / "f").write_text("changed")
    for known, compared in (
        (Compared({"/f": checksum}), Compared({"/f": checksum})),
        (Compared({"/f": other}), Compared(altered={"/f": checksum})),
    ):
        assert trace_all(given, entries, root, known=known).compared == compared


def test_many_files_are_hashed_side_by_side(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).write_text(str(number))
    ships = {f"/{n}": shipped("other" if n % 7 == 0 else str(n)) for n in range(50)}
    found: Provenance = trace_all(
        records_of(ships), dict(walk_root(Root(tmp_path))), Root(tmp_path)
    )
    altered = {t.path for t in found.traces.values() if t.kind is TraceKind.CHANGED}
    assert altered == {f"/{n}" for n in range(0, 50, 7)}


def test_the_files_that_overlays_place_are_in_the_manifest() -> None:
    assert find_placed(IMAGE_OF_LAYERS) == {
        "/etc/placed": Placed("site", 0o644, "root:root", digest_of("placed")),
        "/etc/link": Placed("site", 0o777, "root:root", link="placed"),
    }
