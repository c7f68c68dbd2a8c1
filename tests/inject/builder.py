# SPDX-License-Identifier: Apache-2.0
"""The builder whose commands lock, build and collect, with a tiny distribution behind it.

Its mirror runs outside of the room, so that nobody spoils it.  Calls inside of a build sandbox are
not counted, for its programs have another /etc than ours; a kill ends them all the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.aptrepo import DAY, WITHOUT_PROXY, keyring, make_key
from tests.inject.cases import (
    BEHIND,
    BUILDING,
    FRESH,
    FULL,
    LOCKED,
    OUTDATED,
    SMALL,
    copy,
    empty,
    project_of,
    store_of,
)
from tests.inject.room import scratch_of, world_of
from tests.nights.plans import Change
from tests.nights.world import Places, World
from tests.workshop import Workshop

ORDER = (FRESH, LOCKED, OUTDATED, BEHIND, FULL)
CHANGED = "alpha-server"


def workshop_of(room: Path) -> Workshop:
    """The builder of a room."""
    world = world_of(room)
    site = places_of(room).top / "site.yaml"
    return Workshop(project_of(world), store_of(world).parent, site, world / "cache")


def places_of(room: Path) -> Places:
    """Where the distribution of a room is."""
    return Places(room / "upstream")


def environment(room: Path) -> dict[str, str]:
    """The environment in which the program finds builder and mirror of a room."""
    return workshop_of(room).env(TMPDIR=str(scratch_of(room)), **WITHOUT_PROXY)


@contextmanager
def upstream(room: Path, cases: Collection[str]) -> Iterator[None]:
    """Make the states in which these cases begin, and keep the mirror open; none for the others."""
    needed = {BUILDING[name].begin for name in cases if name in BUILDING}
    if not needed:
        yield
        return
    with keyring() as home:
        distribution = World(places_of(room).top, make_key(home, "Archive"), nights=1)
        try:
            make_states(room, distribution, max(map(ORDER.index, needed)))
            yield
        finally:
            distribution.close()


def make_states(room: Path, distribution: World, last: int) -> None:
    """Lock and build before and after the archive changes, up to the last state that is needed."""
    shop, world = workshop_of(room), world_of(room)

    def make(name: str) -> None:
        near = WITHOUT_PROXY["no_proxy"]
        if name in (LOCKED, BEHIND):
            shop("lock", SMALL, no_proxy=near)
        elif name in (OUTDATED, FULL):
            shop("build", SMALL, "--locked", no_proxy=near)
        if name == OUTDATED:
            distribution.change(Change(CHANGED))
            distribution.day += DAY
            distribution.publish()
        copy(world, room / "begins" / name)

    shutil.copytree(distribution.places.project, shop.project, symlinks=True)
    for name in ORDER[: last + 1]:
        make(name)
    empty(world)
