# SPDX-License-Identifier: Apache-2.0
"""Recipe + lock file + Release files -> the lock to use; resolved only if it may have changed.

    the lock file matches the recipe, and every Release file led to it  ->  keep it
    otherwise resolve again:   the same packages  ->  keep it, and remember the Release files
                               other packages     ->  a new lock

A Release file is signed and names the digest of every list of its archive, so the same Release file
means the same archive; the recipe names wheels by hash.  A lock records the Release files that it
was made from.  Newer ones that changed no package of it are in STATE/nightly/seen/PROFILE.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from imagebuilder.decode import find_object, keep_object
from imagebuilder.digest import digest_of_bytes
from imagebuilder.lock.changes import PackageChange, find_changes
from imagebuilder.lock.file import find_lock, find_siblings, lock_differences, render_lock
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
    """The lock to use.

    `file` is the content of the lock file, None without one; `fallback` is the same if the recipe
    can be built with it.  `changes` lead from `file` to `lock`.  `error` says why the archives
    could not be read; then `lock` is the `fallback`.
    """

    lock: Lock
    file: Lock | None
    fallback: Lock | None
    changes: tuple[PackageChange, ...] = ()
    error: Exception | None = None

    @property
    def new(self) -> bool:
        """Whether the lock differs from the lock file."""
        return self.lock != self.file


def choose_lock(recipe: Recipe, settings: Settings, upstream: Upstream, ui: Ui) -> LockChoice:
    """The newest available lock of `recipe`.  Writes no lock file.

    Raises what resolve() raises if the recipe cannot be built with the lock file instead, and
    InputError if the lock file is invalid.
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
        # The same files, perhaps with other Release files.
        if fallback and replace(lock, sources=()) == replace(fallback, sources=()):
            write_memo(settings, fallback, seen_in(lock.sources))
            return LockChoice(fallback, there, fallback)
        ask = suites_in(recipe, upstream.mirrors, settings)
        changes = find_changes(there, lock, recipe, ask) if there else ()
        return LockChoice(lock, there, fallback, changes)
    except TROUBLES as error:
        if fallback is None:
            raise
        return LockChoice(fallback, there, fallback, error=error)


def seen_in(sources: Sequence[LockedSource]) -> Seen:
    """The Release files of archives, now or when a lock was made."""
    return {f"{source.id} {source.suite}": source.release_sha256 for source in sources}


def memo_file(settings: Settings, profile: str) -> Path:
    """The file that records newer Release files that lead to the same lock."""
    return settings.state / "nightly" / "seen" / f"{profile}.json"


def read_memo(settings: Settings, lock: Lock) -> Seen | None:
    """The record for exactly this lock; None without one, or if it is damaged."""
    value = find_object(memo_file(settings, lock.profile))
    if value is None or value.get("lock") != digest_of_lock(lock):
        return None
    return cast("Seen", value.get("releases", {}))


def write_memo(settings: Settings, lock: Lock, seen: Seen) -> None:
    memo = {"lock": digest_of_lock(lock), "releases": dict(seen)}
    keep_object(memo_file(settings, lock.profile), memo)


def digest_of_lock(lock: Lock) -> str:
    return digest_of_bytes(render_lock(lock).encode())
