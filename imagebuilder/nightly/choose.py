# SPDX-License-Identifier: Apache-2.0
"""Recipe + lock file + Release files -> the lock to go on with; solved only where it may differ.

    the lock file is the recipe's, every Release file is one that led to it  ->  it stays
    else all is chosen anew:       the same  ->  it stays, and the Release files are noted
                                   another   ->  a new lock

A Release file is signed and names the digest of every list of its archive, so the same Release file
is the same archive; wheels are named by hash in the recipe.  What a lock was made from is in it;
the archives that changed since, but no package of it, are in STATE/nightly/seen/PROFILE.json.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from imagebuilder.decode import find_object
from imagebuilder.digest import digest_of_bytes
from imagebuilder.files import write_file
from imagebuilder.lock.changes import PackageChange, find_changes
from imagebuilder.lock.file import find_lock, find_siblings, lock_differences, render_lock
from imagebuilder.lock.storage import make_folder
from imagebuilder.lock.types import Lock, LockedSource
from imagebuilder.nightly.faults import TROUBLES
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.pipeline import resolve, suites_in
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui

# sha256 of Release files, by source and suite.
Seen = Mapping[str, str]


@dataclass(frozen=True)
class LockChoice:
    """The lock to go on with.

    `file` is what the lock file holds, None where there is none; `fallback` is the same where the
    recipe can be built with it too.  `changes` lead from `file` to `lock`.  With `error`, the
    archives could not be asked, and `lock` is the `fallback`.
    """

    lock: Lock
    file: Lock | None
    fallback: Lock | None
    changes: tuple[PackageChange, ...] = ()
    error: Exception | None = None

    @property
    def new(self) -> bool:
        """Whether it is another lock than the file's."""
        return self.lock != self.file


def choose_lock(recipe: Recipe, settings: Settings, upstream: Upstream, ui: Ui) -> LockChoice:
    """The newest lock of `recipe` that can be had; no lock file is written.

    Raises what resolve() raises where there is no lock that the recipe can be built with instead,
    and InputError when the lock file cannot be read.
    """
    there = find_lock(settings.lock_file(recipe.profile))
    stale = lock_differences(recipe, there) if there else ()
    fallback = None if stale else there
    try:
        seen = seen_in(upstream.sources(recipe))
        if fallback and seen in (seen_in(fallback.sources), read_memo(settings, fallback)):
            return LockChoice(fallback, there, fallback)
        if stale:
            ui.note(f"the recipe changed since its lock: {'; '.join(stale)}")
        siblings = find_siblings(settings.lock_file(recipe.profile), ui.detail)
        lock = resolve(recipe, settings, ui, previous=there, siblings=siblings)
        if fallback and same_choice(lock, fallback):
            write_memo(settings, fallback, seen_in(lock.sources))
            return LockChoice(fallback, there, fallback)
        ask = suites_in(recipe, upstream.mirrors, settings)
        changes = find_changes(there, lock, recipe, ask) if there else ()
        return LockChoice(lock, there, fallback, changes)
    except TROUBLES as error:
        if fallback is None:
            raise
        return LockChoice(fallback, there, fallback, error=error)


def same_choice(one: Lock, other: Lock) -> bool:
    """Whether two locks are of the same files; the Release files may be others."""
    return replace(one, sources=()) == replace(other, sources=())


def seen_in(sources: Sequence[LockedSource]) -> Seen:
    """What archives said, tonight or when a lock was made."""
    return {f"{source.id} {source.suite}": source.release_sha256 for source in sources}


def memo_file(settings: Settings, profile: str) -> Path:
    """Where it is noted from which other Release files the same lock follows."""
    return settings.state / "nightly" / "seen" / f"{profile}.json"


def read_memo(settings: Settings, lock: Lock) -> Seen | None:
    """What is noted of exactly this lock; None where nothing is, or it is damaged."""
    value = find_object(memo_file(settings, lock.profile))
    if value is None or value.get("lock") != digest_of_lock(lock):
        return None
    return cast("Seen", value.get("releases", {}))


def write_memo(settings: Settings, lock: Lock, seen: Seen) -> None:
    """Note it; it only saves time, so a failure is none of ours."""
    path = memo_file(settings, lock.profile)
    memo = {"lock": digest_of_lock(lock), "releases": dict(seen)}
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        write_file(path, json.dumps(memo, indent=1).encode())


def digest_of_lock(lock: Lock) -> str:
    """The sha256 of its text."""
    return digest_of_bytes(render_lock(lock).encode())
