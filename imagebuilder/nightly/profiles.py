# SPDX-License-Identifier: Apache-2.0
"""Which profiles a night is about."""

from __future__ import annotations

import os
from collections.abc import Sequence

from imagebuilder.errors import Fault, InputError
from imagebuilder.recipe.variant import load_variant
from imagebuilder.settings import Settings


def choose_profiles(
    asked: Sequence[str], settings: Settings
) -> tuple[tuple[str, ...], tuple[Fault, ...]]:
    """The profiles of a night in order, and why others of the project are not among them.

    Those asked for; else every recipe of its own, and every other profile that has a lock, such as
    `generic.ubuntu-noble`.  Raises InputError for a name that means nothing, or when there is none.
    """
    faults: list[Fault] = []
    if asked:
        for profile in asked:
            load_variant(profile, settings, faults)
        if faults:
            raise InputError.of(faults)
        return tuple(dict.fromkeys(asked)), ()
    every = settings.find_recipes().items()
    recipes = [name for name, path in every if path.parent == settings.recipes]
    locked = sorted(path.stem for path in settings.locks.glob("[!.]*.lock"))
    others = []
    for profile in locked:
        if profile in recipes:
            continue
        if load_variant(profile, settings, []) is None:
            where = os.fspath(settings.lock_file(profile))
            faults.append(Fault(where, "is the lock of no profile", "remove it"))
        else:
            others.append(profile)
    if not (recipes or others):
        raise InputError("there is no recipe", where=os.fspath(settings.recipes))
    return (*recipes, *others), tuple(faults)
