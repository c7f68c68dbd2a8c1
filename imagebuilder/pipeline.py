# SPDX-License-Identifier: Apache-2.0
"""The arrows in a row: what `lock`, `plan` and `build` of the command line each go through."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.errors import Fault, InputError
from imagebuilder.image.manifest import layer_records
from imagebuilder.lock.file import find_lock, load_lock, lock_differences, make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.plan import Plan, make_plan
from imagebuilder.proof.as_json import parse_proof
from imagebuilder.proof.types import Proof
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.read import load_site
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings, find_home
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class BuildOptions:
    """Switches of `build`."""

    locked: bool = False
    offline: bool = False
    keep_failed: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Built:
    """What `build` ends with: `image` is None after a dry run, `new` False when it was there.

    `proof` is None after a dry run, and for an image from before images were proved.
    """

    plan: Plan
    image: ImageRef | None
    new: bool
    proof: Proof | None = None


def build_profile(profile: str, settings: Settings, ui: Ui, options: BuildOptions) -> Built:
    """Recipe -> Lock -> Plan -> Image.  Raises every error of those arrows."""
    from imagebuilder import build as building  # slow to import; not for a build of nothing

    recipe = load_recipe(profile, settings)
    lock = settled_lock(recipe, settings, ui, refresh=not (options.locked or options.dry_run))
    plan = plan_against(Store(settings.state / "store"), recipe, lock)
    if options.dry_run:
        return Built(plan, None, new=False)
    if plan.ready and not plan.to_build:
        store = Store(settings.state / "store")
        there = store.image(f"{profile}@{plan.version}")
        return Built(plan, there, new=False, proof=parse_proof(store.manifest(there)))
    building.check_root()
    image, proof = building.build(
        recipe,
        lock,
        plan,
        settings,
        make_store(settings.state / "store"),
        ui,
        mirrors={} if options.offline else mirrors_of(settings),
        offline=options.offline,
        keep_failed=options.keep_failed,
    )
    return Built(plan, image, new=True, proof=proof)


def plan_of(profile: str, settings: Settings) -> Plan:
    """The plan a build with the lock as it is would follow."""
    recipe = load_recipe(profile, settings)
    lock = fresh_lock(recipe, settings)
    return plan_against(Store(settings.state / "store"), recipe, lock)


def plan_against(store: Store, recipe: Recipe, lock: Lock) -> Plan:
    """A plan that knows the store and tells its reasons from the profile's newest image."""
    images = store.images()
    own = [image for image in images if image.profile == recipe.profile]
    newest = max(own, key=store.made_at, default=None)
    return make_plan(
        recipe,
        lock,
        layers=store.layers(),
        images=frozenset(image.name for image in images),
        previous=layer_records(store.manifest(newest)) if newest else (),
        compared_with=newest.version if newest else "",
    )


def refresh_lock(profile: str, settings: Settings, ui: Ui) -> Lock:
    """`lock`: resolve anew and write the lock file."""
    return resolved_lock(load_recipe(profile, settings), settings, ui, keep=False)


def settled_lock(recipe: Recipe, settings: Settings, ui: Ui, *, refresh: bool) -> Lock:
    """The lock to build from: the one there is; with `refresh` made or brought up to date."""
    path = settings.lock_file(recipe.profile)
    if not refresh:
        return fresh_lock(recipe, settings)
    lock = find_lock(path)
    if lock is None:
        ui.note(f"{recipe.profile} has no lock yet: resolving it")
        return resolved_lock(recipe, settings, ui, keep=False)
    stale = lock_differences(recipe, lock)
    if not stale:
        return lock
    ui.note(f"the recipe changed since its lock: {'; '.join(stale)}")
    return resolved_lock(recipe, settings, ui, keep=True)


def fresh_lock(recipe: Recipe, settings: Settings) -> Lock:
    """The lock of `recipe`.  Raises InputError when there is none or it is stale."""
    path = settings.lock_file(recipe.profile)
    command = f"imagebuilder lock {recipe.profile}"
    if not path.exists():
        raise InputError(
            "there is no lock", where=os.fspath(path), hint=f"{command} resolves the packages"
        )
    lock = load_lock(path)
    if stale := lock_differences(recipe, lock):
        raise InputError.of(
            Fault(os.fspath(path), f"stale: {change}", f"{command} brings it up to date")
            for change in stale
        )
    return lock


def resolved_lock(recipe: Recipe, settings: Settings, ui: Ui, *, keep: bool) -> Lock:
    """Resolve, tell what changed, and write the lock file; unchanged, the file is not touched."""
    path = settings.lock_file(recipe.profile)
    previous = find_lock(path)
    siblings = [load_lock(p) for p in sorted(settings.locks.glob("*.lock")) if p != path]
    lock = resolve(recipe, settings, ui, previous=previous, siblings=siblings, keep=keep)
    if lock != previous:
        make_lock_file(lock, path)
    return lock


def resolve(
    recipe: Recipe,
    settings: Settings,
    ui: Ui,
    *,
    previous: Lock | None,
    siblings: Sequence[Lock],
    keep: bool = False,
) -> Lock:
    """The lock of `recipe` against the mirrors of this host, as make_lock(); no file is written."""
    from imagebuilder.lock.resolve import make_lock

    with ui.step(f"lock {recipe.profile}") as step:
        lock = make_lock(
            recipe,
            mirrors_of(settings),
            settings.cache,
            previous=previous,
            siblings=siblings,
            keep=keep,
            progress=ui.note,
        )
        step.remark(f"{len(lock.packages)} packages")
    return lock


def mirrors_of(settings: Settings) -> Mapping[str, str]:
    """The archives this host reaches: environment, site file, apt's own sources."""
    from imagebuilder.lock.mirrors import find_mirrors

    site = load_site(settings, find_home(os.environ), []).file
    return find_mirrors(site.mirrors, os.environ)
