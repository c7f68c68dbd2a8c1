# SPDX-License-Identifier: Apache-2.0
"""Verify the package pool: every file against the digest in its name; refetch wrong files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.registry import family_of
from imagebuilder.folders import matching
from imagebuilder.fsck.types import Checked, Damage
from imagebuilder.lock.builds import environments, every_package
from imagebuilder.lock.file import load_lock
from imagebuilder.lock.kept import CONTROL, NAMES, find_kept
from imagebuilder.lock.pool import is_right
from imagebuilder.lock.types import Lock
from imagebuilder.package_managers import POOLS
from imagebuilder.pipeline import mirrors_of
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import Settings
from imagebuilder.supplies import fetch, pool_folders
from imagebuilder.ui import PoolProgress, Ui

OTHER = "does not match its digest"
KEPT = (CONTROL, NAMES)
Names = dict[str, str]  # names of files in messages, by sha256


def check_pool(settings: Settings, ui: Ui, *, repair: bool) -> Checked:
    """Verify every package, wheel, source and record.  The caller holds the lock of gc."""
    locks = find_locks(settings)
    files = list(pool_files(settings.state))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        right = list(pool.map(lambda file: is_whole(*file), files))
    names = {sha256: name for lock in locks for sha256, name in names_of(lock).items()}
    wrong = [file for file, is_fine in zip(files, right, strict=True) if not is_fine]
    damage = [
        Damage(
            f"{'record' if path.suffix in KEPT else 'file'} of the pool",
            OTHER,
            os.fspath(path),
            (names.get(sha256, "no lock names it"),),
        )
        for path, sha256 in wrong
    ]
    if repair and wrong:
        fetched = refetch(settings, ui, locks, {sha256 for _, sha256 in wrong})
        damage = [
            repaired(each, path, sha256, fetched, names)
            for each, (path, sha256) in zip(damage, wrong, strict=True)
        ]
    return Checked({"pool-files": len(files)}, tuple(damage))


def find_locks(settings: Settings) -> list[Lock]:
    """The readable locks; commands that need the others report what is wrong with them."""
    found = []
    for path in sorted(settings.locks.glob("*.lock")):
        try:
            found.append(load_lock(path))
        except ImagebuilderError:
            continue
    return found


def pool_files(state: Path) -> Iterator[tuple[Path, str]]:
    """Every file of the pool and the sha256 in its name."""
    for path in (path for name in POOLS for path in sorted((state / name).glob("[!.]*"))):
        yield path, path.name.partition(".")[0]
    for path in sorted(matching(state / "wheels", "[!.]*/*")):
        yield path, path.parent.name


def is_whole(path: Path, sha256: str) -> bool:
    """Whether a file of the pool matches its name."""
    if path.suffix in KEPT:
        return find_kept(path) is not None
    return is_right(path, sha256)


def names_of(lock: Lock) -> Names:
    wheels = (w for layer in lock.layers for env in environments(layer) for w in env.wheels)
    return {
        **{package.sha256: f"{package.nevra} of {lock.profile}" for package in every_package(lock)},
        **{wheel.sha256: f"{wheel.filename} of {lock.profile}" for wheel in wheels},
    }


def refetch(settings: Settings, ui: Ui, locks: list[Lock], wrong: set[str]) -> dict[str, str]:
    """Fetch the files with these sha256 that a lock names; returns why each failed, or ""."""
    results: dict[str, str] = {}
    for lock in locks:
        wanted = (wrong & names_of(lock).keys()) - {s for s, why in results.items() if not why}
        if not wanted:
            continue
        try:
            recipe = load_recipe(lock.profile, settings)
            fetch(
                lock,
                family_of(recipe.base),
                mirrors_of(settings),
                recipe.sources,
                *pool_folders(settings.state, recipe.base.package_manager),
                settings.cache,
                offline=False,
                progress=PoolProgress(ui),
                only=frozenset(wanted),
                doubted=frozenset(wanted),
            )
            results |= dict.fromkeys(wanted, "")
        except ImagebuilderError as error:
            results |= dict.fromkeys(wanted, f"could not fetch it: {error.faults[0].what}")
    return results


def repaired(
    damage: Damage, path: Path, sha256: str, fetched: Mapping[str, str], names: Names
) -> Damage:
    if path.suffix in KEPT or sha256 not in names:
        path.unlink(missing_ok=True)
        return damage.fixed("removed; the next build downloads or builds it again")
    if is_whole(path, sha256):
        return damage.fixed("fetched again")
    return replace(damage, hint=fetched.get(sha256) or damage.hint)
