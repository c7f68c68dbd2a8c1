# SPDX-License-Identifier: Apache-2.0
"""One nightly run at a time, and what a killed one left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import read_text, remove_unfinished
from imagebuilder.locks import file_lock
from imagebuilder.settings import Settings
from imagebuilder.store.workplace import sweep
from imagebuilder.tree import Tree


class RunningError(HostError):
    """Another nightly run is in progress."""


@contextmanager
def single_run(state: Path, name: str) -> Iterator[None]:
    """Be the only nightly run on this builder; `name` identifies it to others.

    The kernel releases the lock with the process.  Raises RunningError that names the other
    run.
    """
    path = state / "locks" / "nightly"

    def refuse() -> None:
        who = read_text(path).strip()
        raise RunningError(
            f"another nightly run is in progress: {who or 'it has just begun'}",
            where=os.fspath(path),
            hint="wait until it has finished, or run systemctl stop imagebuilder-nightly",
        )

    with file_lock(path, waiting=refuse):
        with contextlib.suppress(OSError):  # on a full disk the lock counts, not the name
            path.write_text(f"{name}, process {os.getpid()}\n")
        yield


def sweep_leftovers(settings: Settings, tree: Tree) -> None:
    """Remove what killed commands left, to free space.  Raises WorkError and OSError."""
    for top in (settings.state, tree.path):
        with file_lock(top / "locks" / "work"):
            sweep(top / "work")
    for path in settings.locks.glob(".*.lock.new"):
        remove_unfinished(path)
