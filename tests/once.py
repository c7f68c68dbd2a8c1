# SPDX-License-Identifier: Apache-2.0
"""What is made once a run: one worker makes it, the others wait for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DONE = "complete"


def made_once(
    factory: pytest.TempPathFactory,
    config: pytest.Config,
    name: str,
    make: Callable[[Path], object],
) -> Path:
    """The folder `name` of this run, filled by `make`.  Nobody may change what is in it."""
    if not hasattr(config, "workerinput"):
        alone = factory.mktemp(name)
        make(alone)
        return alone
    shared = factory.getbasetemp().parent / name
    with locked(shared.with_suffix(".lock")):
        if not (shared / DONE).exists():
            shared.mkdir()
            make(shared)
            (shared / DONE).touch()
    return shared


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Keep the other workers out until the end of the block."""
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
