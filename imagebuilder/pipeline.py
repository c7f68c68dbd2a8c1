# SPDX-License-Identifier: Apache-2.0
"""The arrows in a row: what `lock`, `plan` and `build` of the command line each go through."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from imagebuilder.digest import Json
from imagebuilder.errors import Fault, InputError
from imagebuilder.families.protocol import Archives
from imagebuilder.families.registry import families, family_of
from imagebuilder.image.proof import Proof
from imagebuilder.image.types import Image, read_image
from imagebuilder.lock.changes import PackageChange, Suites, counted, find_changes, render_change
from imagebuilder.lock.file import (
    find_lock,
    find_siblings,
    load_lock,
    lock_differences,
    make_lock_file,
)
from imagebuilder.lock.types import Lock
from imagebuilder.plan import Plan, make_plan
from imagebuilder.playbook.package_requests import add_missing, find_requests, tell_missing
from imagebuilder.recipe.agreement import check_versions
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.memory import keep_documents
from imagebuilder.recipe.read import load_site
from imagebuilder.recipe.types import Recipe
from imagebuilder.rights import check_root, check_writable
from imagebuilder.sandbox.sandbox import check_sandbox
from imagebuilder.settings import Settings, find_home
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.store.state import make_state
from imagebuilder.ui import Ui, format_count


@dataclass(frozen=True)
class BuildOptions:
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


@dataclass(frozen=True)
class Refreshed:
    """What `lock` ends with: `previous` is None where no lock was there that could be read."""

    lock: Lock
    previous: Lock | None
    changes: tuple[PackageChange, ...]

    def as_json(self) -> dict[str, Json]:
        return {
            "profile": self.lock.profile,
            "new": self.previous is None,
            "written": self.lock != self.previous,
            "packages": len(self.lock.packages),
            "changes": [asdict(change) for change in self.changes],
        }

    def render(self) -> str:
        """The changes for people: one line per package, and the total."""
        count, profile = format_count(len(self.lock.packages), "package"), self.lock.profile
        if self.previous is None:
            return f"{profile}: a new lock with {count}"
        if self.lock == self.previous:
            return f"{profile}: nothing changed, {count}"
        lines = [render_change(change) for change in self.changes]
        return "\n".join([*lines, f"{profile}: {counted(self.changes)}"])


def build_profile(profile: str, settings: Settings, ui: Ui, options: BuildOptions) -> Built:
    """Recipe -> Lock -> Plan -> Image.  Raises every error of those arrows."""
    recipe = load_recipe(profile, settings)
    lock = settled_lock(recipe, settings, ui, refresh=not (options.locked or options.dry_run))
    store = Store(settings.state / "store")
    newest = find_newest(store, recipe.profile)
    plan = plan_against(store, recipe, lock, newest)
    if options.dry_run:
        return Built(plan, None, new=False)
    if plan.ready and not plan.to_build:
        there = store.image(f"{profile}@{plan.version}")
        built = newest if newest and newest.name == there.name else read_image(store, there)
        return Built(plan, there, new=False, proof=built.proof)
    from imagebuilder import build as building  # with the whole proof; a no-op build needs neither

    check_root("building a root filesystem, which holds files of many owners,")
    make_state(settings.state)
    check_sandbox(settings.state)
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
    keep_documents(settings.state, recipe.profile)
    return Built(plan, image, new=True, proof=proof)


def plan_of(recipe: Recipe, settings: Settings) -> Plan:
    """The plan a build with the lock as it is would follow."""
    lock = fresh_lock(recipe, settings)
    store = Store(settings.state / "store")
    return plan_against(store, recipe, lock, find_newest(store, recipe.profile))


def find_newest(store: Store, profile: str) -> Image | None:
    """The image of a profile that entered the store last.  Raises InputError, WorkError."""
    images = [image for image in store.images() if image.profile == profile]
    return read_image(store, max(images, key=store.made_at)) if images else None


def plan_against(store: Store, recipe: Recipe, lock: Lock, newest: Image | None) -> Plan:
    """A plan that knows the store and tells its reasons from `newest`, the profile's last image.

    Raises InputError when the locked kernel, driver or Mesa is older than a device needs.
    """
    check_versions(recipe, {one.name: one.version for one in lock.packages})
    return make_plan(
        recipe,
        lock,
        layers=store.layers(),
        images=frozenset(image.name for image in store.images()),
        previous=newest.layers if newest else (),
        compared_with=newest.version if newest else "",
    )


def refresh_lock(
    recipe: Recipe,
    settings: Settings,
    ui: Ui,
    *,
    allow_older: bool = False,
    add_packages: bool = False,
) -> Refreshed:
    """`lock`: resolve again and write the lock file, even if the one there cannot be read.

    With `add_packages` the overlays of playbooks get what these ask for, and the lock has it.
    """
    previous, damage = None, ""
    try:
        previous = find_lock(settings.lock_file(recipe.profile))
    except InputError as error:
        damage = f"{error.faults[0].where}: {error.faults[0].what}"
    if damage:
        ui.note(f"note: {damage}; it is replaced, and compared with nothing")
    done = resolved_lock(recipe, settings, ui, previous, keep=False, allow_older=allow_older)
    requests = find_requests(recipe, done.lock, settings, ui)
    if not add_packages:
        tell_missing(recipe, done.lock, requests, settings, ui)
    elif add_missing(done.lock, requests, settings, ui):
        amended = load_recipe(recipe.profile, settings)
        added = resolved_lock(amended, settings, ui, done.lock, keep=True)
        changes = (*done.changes, *added.changes) if previous else ()
        return Refreshed(added.lock, previous, changes)
    return done


def settled_lock(recipe: Recipe, settings: Settings, ui: Ui, *, refresh: bool) -> Lock:
    """The lock to build from: the one there is; with `refresh` made or brought up to date."""
    path = settings.lock_file(recipe.profile)
    if not refresh:
        return fresh_lock(recipe, settings)
    lock = find_lock(path)
    if lock is None:
        ui.note(f"{recipe.profile} has no lock yet: resolving it")
        return told_lock(recipe, settings, ui, None, keep=False).lock
    stale = lock_differences(recipe, lock)
    if not stale:
        return lock
    ui.note(f"the recipe changed since its lock: {'; '.join(stale)}")
    refreshed = told_lock(recipe, settings, ui, lock, keep=True)
    ui.note(f"{counted(refreshed.changes)} in the lock")
    return refreshed.lock


def told_lock(
    recipe: Recipe, settings: Settings, ui: Ui, previous: Lock | None, *, keep: bool
) -> Refreshed:
    """A new lock; says which packages playbooks miss in it before anything is built."""
    done = resolved_lock(recipe, settings, ui, previous, keep=keep)
    requests = find_requests(recipe, done.lock, settings, ui)
    tell_missing(recipe, done.lock, requests, settings, ui)
    return done


def fresh_lock(recipe: Recipe, settings: Settings) -> Lock:
    """The lock of `recipe`.  Raises InputError when there is none or it is stale."""
    path = settings.lock_file(recipe.profile)
    command = f"imagebuilder lock {recipe.profile}"
    if not path.exists():
        raise InputError(
            "there is no lock", where=os.fspath(path), hint=f"run {command} to resolve the packages"
        )
    lock = load_lock(path)
    if stale := lock_differences(recipe, lock):
        raise InputError.of(
            Fault(os.fspath(path), f"stale: {change}", f"run {command} to bring it up to date")
            for change in stale
        )
    return lock


def resolved_lock(
    recipe: Recipe,
    settings: Settings,
    ui: Ui,
    previous: Lock | None,
    *,
    keep: bool,
    allow_older: bool = False,
) -> Refreshed:
    """Resolve and write the lock file; unchanged, the file is not touched."""
    settings.check_project()
    path = settings.lock_file(recipe.profile)
    check_writable(path.parent)
    siblings = find_siblings(path, ui.detail)
    lock = resolve(
        recipe,
        settings,
        ui,
        previous=previous,
        siblings=siblings,
        keep=keep,
        allow_older=allow_older,
    )
    changes: tuple[PackageChange, ...] = ()
    if previous and lock != previous:
        ask = suites_in(recipe, mirrors_of(settings), settings)
        changes = find_changes(previous, lock, recipe, ask)
    if lock != previous:
        make_lock_file(lock, path)
    return Refreshed(lock, previous, changes)


def resolve(
    recipe: Recipe,
    settings: Settings,
    ui: Ui,
    *,
    previous: Lock | None,
    siblings: Sequence[Lock],
    keep: bool = False,
    allow_older: bool = False,
) -> Lock:
    """The lock of `recipe` against the mirrors of this host, as make_lock(); no file is written."""
    from imagebuilder.resolve import make_lock
    from imagebuilder.supplies import pool_folders

    with ui.step(f"Locking {recipe.profile}") as step:
        lock = make_lock(
            recipe,
            mirrors_of(settings),
            settings.cache,
            previous=previous,
            siblings=siblings,
            keep=keep,
            allow_older=allow_older,
            wheels=pool_folders(settings.state, recipe.base.package_manager)[1],
            progress=ui.note,
        )
        step.remark(format_count(len(lock.packages), "package"))
    return lock


def suites_in(
    recipe: Recipe, mirrors: Mapping[str, str], settings: Settings
) -> Callable[[Sequence[str]], Suites]:
    """What tells the suites of packages from the indexes that `recipe` was just solved against."""
    archives = Archives(mirrors, settings.cache)
    return partial(family_of(recipe.base).find_suites, recipe, archives)


def mirrors_of(settings: Settings) -> Mapping[str, str]:
    """The archives this host reaches: environment, site file, the host's own sources."""
    site = load_site(settings, find_home(os.environ), []).file
    found: dict[str, str] = {}
    for family in families():
        found |= family.find_mirrors(site.mirrors, os.environ)
    return found
