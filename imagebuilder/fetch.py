# SPDX-License-Identifier: Apache-2.0
"""Lock -> pool: packages by their family's transport, wheels by pip's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.families.protocol import Archives, Family
from imagebuilder.files import keep_files
from imagebuilder.lock.patience import PATIENCE, Patience, Progress
from imagebuilder.lock.pool import (
    add_wheels,
    adding,
    missing_packages,
    missing_wheels,
    offline_error,
    package_path,
)
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.recipe.types import Source


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
