# SPDX-License-Identifier: Apache-2.0
"""The package pool: every file by its sha256.

POOL/<sha256>.SUFFIX           a package; POOL and the suffix are those of its package manager
POOL/<sha256>.control, .names  what was read from it (kept.py)
POOL/<sha256>.src              a file of a source package
wheels/<sha256>/<file name>    verified, complete or absent
*/.unfinished/                 partial files that the next fetch resumes, by their sha256
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TypeVar

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

L = TypeVar("L", LockedPackage, LockedWheel)

UNFINISHED = ".unfinished"
# A partial file that nobody resumed for so long is no longer needed, or its mirror is gone.
KEEP_DAYS = 7
FIRST_SHOWN = 10
# Space that must remain free in addition to the files.
SPARE_BYTES = 64 << 20
# Starting pip takes a second, so small wheels are fetched together up to this size.
SHARE_BYTES = 50_000_000


def package_path(pool: Path, package: LockedPackage) -> Path:
    """The path in the pool of a package, or of a file of a source package."""
    if package.architecture == SOURCE_ARCHITECTURE:
        return pool / f"{package.sha256}.src"
    return pool / f"{package.sha256}{PurePosixPath(package.path).suffix}"


def wheel_path(wheels: Path, wheel: LockedWheel) -> Path:
    return wheels / wheel.sha256 / wheel.filename


def missing_packages(
    lock: Lock,
    pool: Path,
    doubted: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> list[LockedPackage]:
    """The packages (of `only`) that are missing, of the wrong size, or `doubted` and wrong."""
    return missing(every_package(lock), partial(package_path, pool), doubted, only)


def missing_wheels(
    lock: Lock,
    wheels: Path,
    doubted: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
) -> list[LockedWheel]:
    """The wheels (of `only`) that are missing, of the wrong size, or `doubted` and wrong."""
    every = (env.wheels for layer in lock.layers for env in environments(layer))
    return missing(chain.from_iterable(every), partial(wheel_path, wheels), doubted, only)


def missing(
    files: Iterable[L],
    place: Callable[[L], Path],
    doubted: frozenset[str],
    only: frozenset[str] | None,
) -> list[L]:
    wanted = {file.sha256: file for file in files if only is None or file.sha256 in only}
    return [file for file in wanted.values() if not is_there(place(file), file, doubted)]


def is_there(path: Path, file: LockedPackage | LockedWheel, doubted: frozenset[str]) -> bool:
    """Whether the file exists with its size and, if it is `doubted`, with its content."""
    try:
        if path.stat().st_size != file.size:
            return False
    except FileNotFoundError:
        return False
    return file.sha256 not in doubted or is_right(path, file.sha256)


def is_right(path: Path, sha256: str) -> bool:
    """Whether a file is readable and has this content."""
    try:
        return digest_of_file(path) == sha256
    except OSError:
        return False


def offline_error(packages: Sequence[LockedPackage], wheels: Sequence[LockedWheel]) -> InputError:
    """The error for files that `--offline` cannot fetch."""
    names = [package.nevra for package in packages] + [wheel.filename for wheel in wheels]
    shown = "".join(f"\n    {name}" for name in names[:FIRST_SHOWN])
    more = f"\n    and {len(names) - FIRST_SHOWN} more" if len(names) > FIRST_SHOWN else ""
    return InputError(
        f"{len(names)} of the locked files are not in the pool{shown}{more}",
        hint="build once without --offline, or copy the pool from a builder that has them",
    )


@contextmanager
def adding(pool: Path, size: int) -> Iterator[Path]:
    """The folder for unfinished files, locked so that only one fetch at a time adds to `pool`.

    The next fetch resumes what an interrupted one left there.  Raises FullError if `size` bytes,
    less what is already there, do not fit.
    """
    folder = pool / UNFINISHED
    with storing(pool):
        pool.mkdir(parents=True, exist_ok=True)
        with file_lock(pool / ".lock"):
            sweep_unfinished(folder)
            size -= size_below(folder)
            check_free(
                pool, size + SPARE_BYTES, "to fetch", "run imagebuilder gc to remove unused files"
            )
            folder.mkdir(exist_ok=True)
            try:
                yield folder
            finally:
                with contextlib.suppress(OSError):  # it is kept if it is not empty
                    folder.rmdir()


def sweep_unfinished(folder: Path) -> None:
    """Remove what a killed fetch left and cannot be resumed, and old partial files."""
    limit = time.time() - KEEP_DAYS * 86400
    for work in folder.glob(f"{PREFIX}*/"):
        keep_partial(work)
    for path in folder.glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.stat().st_ctime < limit:
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
    """Fetch the missing wheels, one environment at a time, and keep each share once complete."""
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
            whole = sum(wheel.size for wheel in wanted)
            what = f"Fetching {format_count(len(wanted), 'wheel')}"
            with watched(folder, whole - there, what, progress, patience, whole=whole) as pace:
                for share in shares_of(wanted):
                    download(folder, env.options, share, python, where, pace)
                    for wheel in share:
                        keep_wheel(folder / wheel.filename, wheel, pool)
                        pace.moved(wheel.size)
            missing -= {wheel.sha256 for wheel in wanted}


def shares_of(wheels: Sequence[LockedWheel]) -> Iterator[list[LockedWheel]]:
    """The wheels in shares for one run of pip each: an interruption loses at most one share."""
    share: list[LockedWheel] = []
    for wheel in sorted(wheels, key=lambda wheel: wheel.size):
        if share and sum(each.size for each in share) + wheel.size > SHARE_BYTES:
            yield share
            share = []
        share.append(wheel)
    yield share


def keep_wheel(path: Path, wheel: LockedWheel, pool: Path) -> None:
    """Move a wheel into the pool if it matches the lock.  Raises WorkError.

    One of another size is kept: the next lock has its size, which the server misreported.
    """
    found = digest_of_file(path) if path.exists() else "nothing"
    if found != wheel.sha256:
        raise WorkError(f"{wheel.filename} has sha256 {found}, but the lock has {wheel.sha256}")
    target = wheel_path(pool, wheel)
    make_folder(target.parent)
    path.chmod(0o644)
    keep_file(path, target)
    if (size := target.stat().st_size) != wheel.size:
        raise WorkError(
            f"{wheel.filename} has {size} bytes, but the lock says {wheel.size}, as its index did",
            hint="run imagebuilder lock PROFILE, which takes the size of this file; the file was "
            "verified and is kept",
        )
