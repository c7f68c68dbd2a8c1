# SPDX-License-Identifier: Apache-2.0
"""One night at a time, and what a killed one left."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.settings import Settings
from imagebuilder.store.locks import held
from imagebuilder.store.workplace import sweep
from imagebuilder.tree import Tree

# The unfinished file of make_lock_file(): its process, and its thread.
UNFINISHED = re.compile(r"\..+\.lock\.(\d+)-\d+")


@contextmanager
def sole_night(state: Path, name: str) -> Iterator[None]:
    """Be the only night on this builder; `name` tells others who it is.

    The kernel ends it with the process.  Raises HostError that names the one under way.
    """
    path = state / "locks" / "nightly"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise HostError(
                f"another night is under way: {who or 'it has just begun'}",
                where=os.fspath(path),
                hint="wait for its end; systemctl stop imagebuilder-nightly ends one of the timer",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{name}, process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def sweep_leftovers(settings: Settings, tree: Tree) -> None:
    """Remove what killed commands left, so that its space counts.  Raises WorkError and OSError."""
    for top in (settings.state, tree.path):
        with held(top / "locks" / "work"):
            sweep(top / "work")
    for path in settings.locks.glob(".*.lock.*"):
        match = UNFINISHED.fullmatch(path.name)
        if match and not Path("/proc", match[1]).exists():
            path.unlink(missing_ok=True)
