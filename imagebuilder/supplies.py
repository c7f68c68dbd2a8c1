# SPDX-License-Identifier: Apache-2.0
"""What a build takes from the package pool: fetched before it begins, verified as it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.families.protocol import Archives, Family
from imagebuilder.families.registry import family_of
from imagebuilder.files import keep_files
from imagebuilder.lock.builds import SOURCE_ARCHITECTURE
from imagebuilder.lock.patience import PATIENCE, Patience, Progress
from imagebuilder.lock.pool import (
    add_wheels,
    adding,
    missing_packages,
    missing_wheels,
    offline_error,
    package_path,
)
from imagebuilder.lock.storage import check_free
from imagebuilder.lock.types import Lock, LockedPackage, LockedWheel
from imagebuilder.lock.verified import Locked, Pool, name_of
from imagebuilder.named import check_named
from imagebuilder.package_managers import PACKAGE_MANAGERS
from imagebuilder.phrases import list_first
from imagebuilder.plan import Plan
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.settings import Settings
from imagebuilder.ui import PoolProgress, Ui, format_size

MOST_NAMED = 3
# Per cent: blocks that files do not fill, and what maintainer scripts make.
MARGIN = 15
# How many times its download a package takes, where the archive does not say, and a wheel.
GROWN, GROWN_WHEEL = 5, 3


@contextmanager
def supplies(
    recipe: Recipe,
    lock: Lock,
    plan: Plan,
    settings: Settings,
    ui: Ui,
    *,
    mirrors: Mapping[str, str],
    offline: bool,
) -> Iterator[Pool]:
    """The pool with all that the steps of `plan` take.

    Files that were there before are read while the build runs, those of the first step first; one
    that is not what the lock says is fetched again.  Raises what fetch() raises.
    """
    packages, wheels = pool_folders(settings.state, recipe.base.package_manager)

    def get(doubted: frozenset[str] = frozenset()) -> frozenset[str]:
        return fetch(
            lock,
            family_of(recipe.base),
            mirrors,
            recipe.sources,
            packages,
            wheels,
            settings.cache,
            only=needed(plan),
            offline=offline,
            progress=PoolProgress(ui),
            doubted=doubted,
        )

    def refetch(files: Sequence[Locked]) -> None:
        names = list_first(map(name_of, files), MOST_NAMED)
        ui.note(f"damaged in the package pool, fetching again: {names}")
        get(frozenset(file.sha256 for file in files))

    with Pool(packages, wheels, refetch=refetch, fetched=get()) as pool:
        for planned in plan.to_build:
            pool.expect(planned.step.takes)
        check_named(recipe, lock, plan, packages)
        yield pool


def pool_folders(state: Path, package_manager: str) -> tuple[Path, Path]:
    return state / PACKAGE_MANAGERS[package_manager].pool, state / "wheels"


@dataclass(frozen=True)
class BuildSpace:
    """The bytes a build takes at most: what it fetches, and what its layers and its work take."""

    fetched: int
    built: int

    @property
    def total(self) -> int:
        return self.fetched + self.built


def check_space(state: Path, recipe: Recipe, lock: Lock, plan: Plan) -> None:
    """Raise FullError when the build may not fit."""
    room = build_space(state, recipe, lock, plan)
    check_free(
        state,
        room.total,
        f"to fetch {format_size(room.fetched)} and to build {format_size(room.built)}",
        "run imagebuilder gc to free what no image needs, or name another place with --state",
    )


def build_space(state: Path, recipe: Recipe, lock: Lock, plan: Plan) -> BuildSpace:
    """What the steps to be built take of the store, the pool and the work below `state`.

    Layers are moved into the store, so a file counts once.  Where a step rewrites what is there
    (slim), the old file stays in the layer below.
    """
    wanted = needed(plan)
    packages, wheels = pool_folders(state, recipe.base.package_manager)
    missing: list[Locked] = [
        *missing_packages(lock, packages, only=wanted),
        *missing_wheels(lock, wheels, only=wanted),
    ]
    root = sum(map(installed_size, lock.packages))
    files = sum(
        sum(map(installed_size, step.takes)) + step.writes + root * step.rewrites // 100
        for step in (planned.step for planned in plan.to_build)
    )
    fetched = sum(file.size for file in missing)
    return BuildSpace(fetched, files * (100 + MARGIN) // 100)


def installed_size(file: Locked) -> int:
    """What a package or wheel takes in a root."""
    if isinstance(file, LockedWheel):
        return file.size * GROWN_WHEEL
    if file.architecture == SOURCE_ARCHITECTURE:
        return file.size * GROWN
    return file.installed or file.size * GROWN


def needed(plan: Plan) -> frozenset[str]:
    """The digests of the files of the pool that the steps to be built take."""
    return frozenset(file.sha256 for planned in plan.to_build for file in planned.step.takes)


def fetch(
    lock: Lock,
    family: Family,
    mirrors: Mapping[str, str],
    recipe_sources: tuple[Source, ...],
    pool: Path,
    wheels: Path,
    cache: Path,
    *,
    offline: bool,
    progress: Progress,
    only: frozenset[str] | None = None,
    doubted: frozenset[str] = frozenset(),
    patience: Patience = PATIENCE,
) -> frozenset[str]:
    """Fetch missing packages and wheels of `lock` into the pool, or only those with a sha256 in
    `only`; returns the sha256 of those fetched.

    A file of the right size counts as present; the content of those in `doubted` is read too.

    Raises InputError if `offline` and something is missing, HostError for a full disk and for a
    mirror that is unreachable or too slow, and WorkError for a file that is missing on the mirror
    or differs from the lock.  Complete files survive an error, and partial ones are resumed.
    """

    def keep(files: Sequence[tuple[Path, LockedPackage]]) -> None:
        for path, _ in files:
            path.chmod(0o644)
        if files:
            keep_files([(path, package_path(pool, package)) for path, package in files])

    packages = missing_packages(lock, pool, doubted, only)
    files = missing_wheels(lock, wheels, doubted, only)
    if offline and (packages or files):
        raise offline_error(packages, files)
    if packages:
        with adding(pool, sum(package.size for package in packages)) as folder:
            wanted = missing_packages(lock, pool, doubted, only)
            family.fetch(
                wanted,
                recipe_sources,
                Archives(mirrors, cache),
                folder,
                keep,
                architecture=lock.architecture,
                progress=progress,
                patience=patience,
            )
    if files:
        from imagebuilder.lock.wheels import glibc_of  # slow; `plan` never needs it

        with adding(wheels, sum(wheel.size for wheel in files)) as folder:
            glibc = glibc_of(family.glibc(lock.packages))
            add_wheels(lock, glibc, folder, wheels, progress, patience, doubted, only)
    return frozenset([*(p.sha256 for p in packages), *(w.sha256 for w in files)])
