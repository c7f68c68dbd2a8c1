# SPDX-License-Identifier: Apache-2.0
"""The package pool: every file by its sha256, fetched by apt's and pip's own transports.

debs/<sha256>.deb              verified, complete or absent
debs/<sha256>.control          its control record, once somebody has read it
debs/<sha256>.src              a file of a source package
wheels/<sha256>/<file name>    verified, complete or absent
*/.partial-*                   one fetch's unfinished files; gone when it ends
*/.lock                        held by the one fetch that adds
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import FullError, InputError, WorkError
from imagebuilder.lock.apt import Apt, make_apt
from imagebuilder.lock.builds import SOURCE_ARCHITECTURE, environments, every_package
from imagebuilder.lock.fetching import Progress, fetch_debs, watched
from imagebuilder.lock.storage import beside, storing, sync
from imagebuilder.lock.types import Lock, LockedPackage, LockedWheel
from imagebuilder.process import run
from imagebuilder.recipe.types import Source

PARTIAL = ".partial-"
FIRST_SHOWN = 10
# What must stay free beside the files themselves.
SPARE_BYTES = 64 << 20


def deb_path(debs: Path, sha256: str) -> Path:
    """Where a package lies in the pool."""
    return debs / f"{sha256}.deb"


def package_path(debs: Path, package: LockedPackage) -> Path:
    """Where a package, or a file of a source package, lies in the pool."""
    if package.architecture == SOURCE_ARCHITECTURE:
        return debs / f"{package.sha256}.src"
    return deb_path(debs, package.sha256)


def wheel_path(wheels: Path, wheel: LockedWheel) -> Path:
    """Where a wheel lies in the pool."""
    return wheels / wheel.sha256 / wheel.filename


def control(debs: Path, package: LockedPackage) -> str:
    """The control record of a package of the pool.  Raises WorkError when it is not there."""
    kept = debs / f"{package.sha256}.control"
    try:
        return kept.read_text()
    except FileNotFoundError:
        text = run(["dpkg-deb", "--field", deb_path(debs, package.sha256)]).stdout
    new = beside(kept)
    new.write_text(text)
    new.replace(kept)
    return text


def fetch(
    lock: Lock,
    mirrors: Mapping[str, str],
    recipe_sources: tuple[Source, ...],
    debs: Path,
    wheels: Path,
    cache: Path,
    *,
    offline: bool,
    progress: Progress,
) -> None:
    """See to it that the pool has every package and wheel of `lock`.

    Raises InputError when `offline` and something is missing, HostError for a mirror that is not
    reachable or a full disk, and WorkError for a file that is gone from the mirror or is not what
    the lock says.  What was fetched before an error stays.
    """
    packages = missing_packages(lock, debs)
    files = missing_wheels(lock, wheels)
    if offline and (packages or files):
        raise offline_error(packages, files)
    if packages:
        with adding(debs, sum(package.size for package in packages)) as folder:
            wanted = missing_packages(lock, debs)
            apt = make_apt(recipe_sources, mirrors, cache, architecture=lock.architecture)
            add_packages(apt, wanted, folder, debs, progress)
    if files:
        with adding(wheels, sum(wheel.size for wheel in files)) as folder:
            add_wheels(lock, folder, wheels, progress)


def missing_packages(lock: Lock, debs: Path) -> list[LockedPackage]:
    """The packages the pool does not have, or has with another size."""
    wanted = {package.sha256: package for package in every_package(lock)}
    return [
        package
        for package in wanted.values()
        if not has_size(package_path(debs, package), package.size)
    ]


def missing_wheels(lock: Lock, wheels: Path) -> list[LockedWheel]:
    """The wheels the pool does not have, or has with another size."""
    wanted = {
        wheel.sha256: wheel
        for layer in lock.layers
        for env in environments(layer)
        for wheel in env.wheels
    }
    return [
        wheel for wheel in wanted.values() if not has_size(wheel_path(wheels, wheel), wheel.size)
    ]


def has_size(path: Path, size: int) -> bool:
    """Whether there is a file of that size."""
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def offline_error(packages: Sequence[LockedPackage], wheels: Sequence[LockedWheel]) -> InputError:
    """The error for what cannot be fetched without a network."""
    names = [package.nevra for package in packages] + [wheel.filename for wheel in wheels]
    shown = "".join(f"\n    {name}" for name in names[:FIRST_SHOWN])
    more = f"\n    and {len(names) - FIRST_SHOWN} more" if len(names) > FIRST_SHOWN else ""
    return InputError(
        f"{len(names)} of the locked files are not in the pool{shown}{more}",
        hint="build once without --offline, or copy the pool from a builder that has them",
    )


@contextmanager
def adding(pool: Path, size: int) -> Iterator[Path]:
    """A folder for unfinished files of the only fetch that adds to `pool`, gone at the end.

    Raises FullError when `size` bytes do not fit.
    """
    with storing(pool), open_lock(pool) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        for left in pool.glob(f"{PARTIAL}*"):
            remove(left)
        free = shutil.disk_usage(pool).free
        if size + SPARE_BYTES > free:
            raise FullError(
                f"no space left: {mega(size)} to fetch, {mega(free)} free",
                where=os.fspath(pool),
                hint="imagebuilder gc removes what no image uses",
            )
        with tempfile.TemporaryDirectory(dir=pool, prefix=f"{PARTIAL}{os.getpid()}-") as name:
            yield Path(name)


def open_lock(pool: Path) -> IO[str]:
    """The file that the one fetch that adds to `pool` holds."""
    pool.mkdir(parents=True, exist_ok=True)
    return (pool / ".lock").open("w")


def remove(path: Path) -> None:
    """Remove what a killed fetch has left."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def mega(size: int) -> str:
    """A size in megabytes."""
    return f"{size / 1e6:.0f} MB"


def add_packages(
    apt: Apt, packages: Sequence[LockedPackage], folder: Path, debs: Path, progress: Progress
) -> None:
    """Fetch packages into `folder` and rename each that is right into the pool."""
    for package, path in fetch_debs(apt, packages, folder, progress):
        keep(path, package_path(debs, package))
    sync(debs)


def add_wheels(lock: Lock, folder: Path, pool: Path, progress: Progress) -> None:
    """Fetch the wheels that are missing, an environment at a time."""
    from imagebuilder.lock.wheels import Python, download, glibc_of  # slow; `plan` never needs it

    missing = {wheel.sha256 for wheel in missing_wheels(lock, pool)}
    for layer in lock.layers:
        for env in environments(layer):
            wanted = [wheel for wheel in env.wheels if wheel.sha256 in missing]
            if not wanted:
                continue
            where = f"python environment {env.path}"
            python = Python(env.python, glibc_of(lock.packages), lock.architecture)
            size = sum(wheel.size for wheel in wanted)
            with watched(folder, size, f"Fetching {len(wanted)} wheels", progress):
                download(folder, env.options, wanted, python, where)
            for wheel in wanted:
                keep_wheel(folder / wheel.filename, wheel, pool)
            missing -= {wheel.sha256 for wheel in wanted}


def keep_wheel(path: Path, wheel: LockedWheel, pool: Path) -> None:
    """Rename a wheel into the pool if it is what the lock says.  Raises WorkError."""
    found = digest_of_file(path) if path.exists() else "nothing"
    if found != wheel.sha256:
        raise WorkError(f"{wheel.filename} has sha256 {found}, the lock says {wheel.sha256}")
    target = wheel_path(pool, wheel)
    target.parent.mkdir(exist_ok=True)
    keep(path, target)
    sync(target.parent)


def keep(path: Path, target: Path) -> None:
    """Rename a complete file to its name in the pool, durably."""
    path.chmod(0o644)
    sync(path)
    path.replace(target)
