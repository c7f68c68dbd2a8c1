# SPDX-License-Identifier: Apache-2.0
"""Which profiles a nightly run has, and its options in the site file: the key `nightly`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.fleet.drain import choose_drainer
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.start import parse_share
from imagebuilder.fleet.rollout.types import RolloutTerms
from imagebuilder.nightly.types import NightlyRollout
from imagebuilder.notify.receivers import in_home
from imagebuilder.recipe.model_nightly import NightlyModel
from imagebuilder.recipe.read import load_site_file
from imagebuilder.recipe.variant import load_variant
from imagebuilder.settings import Settings

REPORT = "nightly"  # default folder, below the state


def load_nightly(settings: Settings, env: Mapping[str, str]) -> NightlyModel:
    """The `nightly` of the site file, or the defaults.  Raises InputError."""
    return load_site_file(settings, env).nightly


def find_rollout_wish(
    site: NightlyModel, *, promote: bool | None, rollout: bool | None
) -> tuple[bool, NightlyRollout | None]:
    """Whether to promote and how to roll out; options that are None take the site's value.

    Raises InputError, and HostError if a scheduler's program is missing, before hours of building.
    """
    promotes = site.promote if promote is None else promote
    if not (site.rollout is not None if rollout is None else rollout):
        return promotes, None
    if promotes:
        raise InputError(
            "--promote and --rollout exclude each other: a roll-out promotes at its end",
            hint="add --no-promote or --no-rollout, or remove one of the two from the site file",
        )
    said = site.rollout
    if said is None:
        raise InputError(
            "--rollout needs a maintenance window",
            hint="set nightly: {rollout: {window: 'Sun 02:00-05:00'}} in the site file",
        )
    parse_share(said.batch, 1)
    choose_drainer(said.drain)
    accepted = tuple(map(Verdict, said.accept))
    terms = RolloutTerms(said.timeout, said.drain_timeout, accepted, said.drain, said.at_once)
    return False, NightlyRollout(said.window, terms, said.canary, said.batch)


def find_report_folder(site: NightlyModel, settings: Settings, env: Mapping[str, str]) -> Path:
    """The default folder of the report and the history."""
    return in_home(site.report, env) if site.report else settings.state / REPORT


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
