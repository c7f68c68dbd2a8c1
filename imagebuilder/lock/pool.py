# SPDX-License-Identifier: Apache-2.0
"""The package pool: every file by its sha256.

POOL/<sha256>.SUFFIX           a package; POOL and the suffix are those of its package manager
POOL/<sha256>.control, .names  what was read of it (kept.py)
POOL/<sha256>.src              a file of a source package
wheels/<sha256>/<file name>    verified, complete or absent
*/.unfinished/                 what the next fetch continues, a file by its sha256
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import keep_file, make_folder
from imagebuilder.lock.builds import SOURCE_ARCHITECTURE, environments, every_package
from imagebuilder.lock.continued import PREFIX, keep_partial, kept_of, size_of
from imagebuilder.lock.patience import Patience, Progress, size_below, watched
from imagebuilder.lock.storage import check_free, storing
from imagebuilder.lock.types import Lock, LockedPackage, LockedWheel
from imagebuilder.locks import file_lock
from imagebuilder.ui import format_count

UNFINISHED = ".unfinished"
# A file that nobody has continued for so long is not wanted any more, or its mirror has gone.
KEEP_DAYS = 7
FIRST_SHOWN = 10
# What must stay free beside the files themselves.
SPARE_BYTES = 64 << 20
# Starting pip takes a second: of many small wheels, so much is fetched at once.
SHARE_BYTES = 50_000_000


def package_path(pool: Path, package: LockedPackage) -> Path:
    """Where a package, or a file of a source package, lies in the pool."""
    if package.architecture == SOURCE_ARCHITECTURE:
        return pool / f"{package.sha256}.src"
    return pool / f"{package.sha256}{PurePosixPath(package.path).suffix}"


def wheel_path(wheels: Path, wheel: LockedWheel) -> Path:
    """Where a wheel lies in the pool."""
    return wheels / wheel.sha256 / wheel.filename


def missing_packages(
    lock: Lock,
    pool: Path,
    doubted: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> list[LockedPackage]:
    """The packages (of `only`) that are missing, or of another size, or `doubted` and wrong."""
    wanted = {package.sha256: package for package in every_package(lock)}
    return [
        package
        for package in wanted.values()
        if (only is None or package.sha256 in only)
        and not is_there(package_path(pool, package), package, doubted)
    ]


def missing_wheels(
    lock: Lock,
    wheels: Path,
    doubted: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> list[LockedWheel]:
    """The wheels (of `only`) that are missing, or of another size, or `doubted` and wrong."""
    wanted = {
        wheel.sha256: wheel
        for layer in lock.layers
        for env in environments(layer)
        for wheel in env.wheels
    }
    return [
        wheel
        for wheel in wanted.values()
        if (only is None or wheel.sha256 in only)
        and not is_there(wheel_path(wheels, wheel), wheel, doubted)
    ]


def is_there(path: Path, file: LockedPackage | LockedWheel, doubted: frozenset[str]) -> bool:
    """Whether there is a file of that size and, if it is `doubted`, of that content."""
    try:
        if path.stat().st_size != file.size:
            return False
    except FileNotFoundError:
        return False
    return file.sha256 not in doubted or is_right(path, file.sha256)


def is_right(path: Path, sha256: str) -> bool:
    """Whether a file can be read and has this content."""
    try:
        return digest_of_file(path) == sha256
    except OSError:
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
    """The folder for unfinished files of the only fetch that adds to `pool`.

    What an ended fetch has left there, the next one continues.  Raises FullError when `size` bytes,
    of which some may be there, do not fit.
    """
    folder = pool / UNFINISHED
    with storing(pool):
        pool.mkdir(parents=True, exist_ok=True)
        with file_lock(pool / ".lock"):
            sweep_unfinished(folder)
            size -= size_below(folder)
            check_free(
                pool, size + SPARE_BYTES, "to fetch", "imagebuilder gc removes what no image uses"
            )
            folder.mkdir(exist_ok=True)
            try:
                yield folder
            finally:
                with contextlib.suppress(OSError):  # what is in it stays
                    folder.rmdir()


def sweep_unfinished(folder: Path) -> None:
    """Remove what cannot be continued, and what nobody has."""
    limit = time.time() - KEEP_DAYS * 86400
    for room in folder.glob(f"{PREFIX}*/"):
        keep_partial(room)
    for left in folder.glob("*"):
        if left.is_dir() or left.is_symlink() or left.stat().st_ctime < limit:
            remove(left)


def remove(path: Path) -> None:
    """Remove what a killed fetch has left."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def add_wheels(
    lock: Lock,
    glibc: int,
    folder: Path,
    pool: Path,
    progress: Progress,
    patience: Patience,
    doubted: frozenset[str],
    only: frozenset[str] | None,
) -> None:
    """Fetch the wheels that are missing, an environment at a time, and keep each share of them."""
    from imagebuilder.lock.wheels import Python, download  # slow; `plan` never needs it

    missing = {wheel.sha256 for wheel in missing_wheels(lock, pool, doubted, only)}
    for layer in lock.layers:
        for env in environments(layer):
            wanted = [wheel for wheel in env.wheels if wheel.sha256 in missing]
            if not wanted:
                continue
            where = f"python environment {env.path}"
            python = Python(env.python, glibc, lock.architecture)
            there = sum(size_of(path) for wheel in wanted for path in kept_of(folder, wheel))
            size = sum(wheel.size for wheel in wanted) - there
            what = f"Fetching {format_count(len(wanted), 'wheel')}"
            with watched(folder, size, what, progress, patience) as pace:
                for share in shares_of(wanted):
                    download(folder, env.options, share, python, where, pace)
                    for wheel in share:
                        keep_wheel(folder / wheel.filename, wheel, pool)
                        pace.moved(wheel.size)
            missing -= {wheel.sha256 for wheel in wanted}


def shares_of(wheels: Sequence[LockedWheel]) -> Iterator[list[LockedWheel]]:
    """The wheels in shares that one run of pip fetches: what is lost when it is interrupted."""
    share: list[LockedWheel] = []
    for wheel in sorted(wheels, key=lambda wheel: wheel.size):
        if share and sum(each.size for each in share) + wheel.size > SHARE_BYTES:
            yield share
            share = []
        share.append(wheel)
    yield share


def keep_wheel(path: Path, wheel: LockedWheel, pool: Path) -> None:
    """Rename a wheel into the pool if it is what the lock says.  Raises WorkError."""
    found = digest_of_file(path) if path.exists() else "nothing"
    if found != wheel.sha256:
        raise WorkError(f"{wheel.filename} has sha256 {found}, the lock says {wheel.sha256}")
    target = wheel_path(pool, wheel)
    make_folder(target.parent)
    path.chmod(0o644)
    keep_file(path, target)
