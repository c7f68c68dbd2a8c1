# SPDX-License-Identifier: Apache-2.0
"""Choose the profiles of a nightly run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from imagebuilder.errors import Fault, InputError
from imagebuilder.recipe.variant import load_variant
from imagebuilder.settings import Settings


def choose_profiles(
    requested: Sequence[str], settings: Settings
) -> tuple[tuple[str, ...], tuple[Fault, ...]]:
    """The profiles of a run in order, and why other profiles of the project are left out.

    By default every recipe, and every other profile that has a lock, such as
    `generic.ubuntu-noble`.  Raises InputError for an unknown name, or if there is no profile.
    """
    faults: list[Fault] = []
    if requested:
        for profile in requested:
            load_variant(profile, settings, faults)
        if faults:
            raise InputError.of(faults)
        return tuple(dict.fromkeys(requested)), ()
    every = settings.find_recipes().items()
    recipes = [name for name, path in every if path.parent == settings.recipes]
    locked = sorted(path.stem for path in settings.locks.glob("[!.]*.lock"))
    others = []
    for profile in locked:
        if profile in recipes:
            continue
        if load_variant(profile, settings, []) is None:
            where = os.fspath(settings.lock_file(profile))
            faults.append(Fault(where, "does not belong to any profile", "remove it"))
        else:
            others.append(profile)
    if not (recipes or others):
        raise InputError("contains no recipe", where=os.fspath(settings.recipes))
    return (*recipes, *others), tuple(faults)
