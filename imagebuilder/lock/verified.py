# SPDX-License-Identifier: Apache-2.0
"""The pool as steps use it: every file taken from it was read and matches the lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from imagebuilder.errors import WorkError
from imagebuilder.lock.pool import is_right, package_path, wheel_path
from imagebuilder.lock.types import LockedPackage, LockedWheel

Locked = LockedPackage | LockedWheel
# Fetches damaged or missing files once more.
Refetch = Callable[[Sequence[Locked]], None]
MOST_AT_ONCE = 4


class Pool:
    """The pool below `packages` and `wheels`.

    expect() begins to read files in the background, in the order in which steps will take them;
    take() waits for them.  A wrong or missing file is fetched with `refetch`.  `fetched` are
    digests of files that were just verified.
    """

    def __init__(
        self,
        packages: Path,
        wheels: Path,
        *,
        refetch: Refetch | None = None,
        fetched: frozenset[str] = frozenset(),
    ) -> None:
        self.packages, self.wheels = packages, wheels
        self._refetch, self._fetched = refetch, fetched
        self._threads = ThreadPoolExecutor(min(MOST_AT_ONCE, os.cpu_count() or 1))
        self._read: dict[str, Future[bool]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def path(self, file: Locked) -> Path:
        if isinstance(file, LockedWheel):
            return wheel_path(self.wheels, file)
        return package_path(self.packages, file)

    def expect(self, files: Iterable[Locked]) -> None:
        for file in files:
            self._reading(file)

    def take(self, files: Sequence[Locked]) -> list[Path]:
        """The paths of `files`, each with the content that the lock names.

        Raises WorkError for a missing or wrong file that cannot be fetched, and what fetch()
        raises.
        """
        known = self._fetched
        wrong = [f for f in files if f.sha256 not in known and not self._reading(f).result()]
        if wrong and self._refetch is None:
            raise self._error(wrong[0])
        if wrong and self._refetch is not None:
            self._refetch(wrong)
            self._fetched |= {file.sha256 for file in wrong}
        return [self.path(file) for file in files]

    def _reading(self, file: Locked) -> Future[bool]:
        if file.sha256 not in self._read:
            self._read[file.sha256] = self._threads.submit(is_right, self.path(file), file.sha256)
        return self._read[file.sha256]

    def _error(self, file: Locked) -> WorkError:
        path = self.path(file)
        folder = self.wheels if isinstance(file, LockedWheel) else self.packages
        if not path.exists():
            return WorkError(f"{name_of(file)} is not in the package pool {folder}")
        return WorkError(
            f"{name_of(file)} in the package pool does not match the lock",
            where=os.fspath(path),
            hint="run imagebuilder fsck --repair to fetch it again",
        )


def name_of(file: Locked) -> str:
    return file.filename if isinstance(file, LockedWheel) else file.nevra
