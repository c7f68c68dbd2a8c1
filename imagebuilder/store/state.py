# SPDX-License-Identifier: Apache-2.0
"""What only root may look into: the folders of the state, and how that is said to others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from imagebuilder.errors import HostError, InputError
from imagebuilder.files import close, make_private
from imagebuilder.locks import file_lock
from imagebuilder.package_managers import POOLS
from imagebuilder.rights import check_enterable, check_executable, check_writable
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.store.workplace import new_id, workplace

# All but nightly/, whose pages are for everybody.
PRIVATE = (
    *POOLS,
    *("layers", "locks", "logs", "parsed", "store", "trees", "verified", "wheels", "work"),
)


def make_state(state: Path) -> None:
    """Make the folders of the state, for root alone.  Raises HostError."""
    check_writable(state)
    check_executable(state)
    try:
        for name in PRIVATE:
            make_private(state / name)
    except OSError as error:
        raise HostError(
            f"cannot make the state directory: {error.strerror}",
            where=error.filename or os.fspath(state),
            hint="name another place with --state or IMAGEBUILDER_STATE",
        ) from error


def close_state(state: Path) -> None:
    """Take from others the folders that an older version left open, where we may."""
    with contextlib.suppress(OSError):
        for name in PRIVATE:
            close(state / name)


def check_state(state: Path) -> None:
    """Raise InputError for a state that is, or is below, something else than a folder."""
    there = next(path for path in (state, *state.parents) if os.path.lexists(path))
    if not os.path.isdir(there):  # noqa: PTH112 - never raises
        dangles = there.is_symlink() and not there.exists()
        what = "is a link to nothing" if dangles else "is not a folder"
        hint = "name the folder of the state with --state or IMAGEBUILDER_STATE"
        raise InputError(what, where=os.fspath(there), hint=hint)


def open_store(settings: Settings) -> Store:
    """The store that is there.  Raises InputError when nothing was ever built."""
    check_state(settings.state)
    store = Store(settings.state / "store")
    close_state(settings.state)
    check_enterable(store.path)
    if not store.is_there():
        raise InputError(
            "there is no store yet",
            where=os.fspath(store.path),
            hint="run imagebuilder build PROFILE to make it, or name another one with --state",
        )
    return store


@contextlib.contextmanager
def checked_out(settings: Settings, store: Store, commit: str, purpose: str) -> Iterator[Path]:
    """A workplace with the tree of `commit` in its folder `root`; no gc runs meanwhile."""
    with (
        file_lock(store.gc_lock, shared=True),
        workplace(settings.state, new_id(purpose)) as work,
    ):
        store.checkout(commit, work / "root")
        yield work
