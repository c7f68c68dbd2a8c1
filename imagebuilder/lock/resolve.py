# SPDX-License-Identifier: Apache-2.0
"""Recipe and mirrors to Lock: apt's own solver and pip, without root and without a chroot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.lock.apt import Apt, forget_lists, in_use, make_apt
from imagebuilder.lock.builds import (
    build_requests,
    elsewhere,
    every_package,
    has_sources,
    lock_builds,
)
from imagebuilder.lock.claims import check_against_lock
from imagebuilder.lock.mirrors import default_notes
from imagebuilder.lock.release import Release
from imagebuilder.lock.request import Request
from imagebuilder.lock.solve import Solved, solve
from imagebuilder.lock.sources import locked_sources, render_preferences
from imagebuilder.lock.storage import storing
from imagebuilder.lock.types import (
    Lock,
    LockedBuild,
    LockedLayer,
    LockedPackage,
    LockedPython,
)
from imagebuilder.lock.update import load_releases
from imagebuilder.lock.wheels import lock_python, python_of
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.types import Overlay, Recipe
from imagebuilder.ui import format_count

# Above any pin of a recipe, so that what a lock had is kept while the mirror has it.
KEEP_PRIORITY = 1002


def make_apt_of(recipe: Recipe, mirrors: Mapping[str, str], cache: Path) -> Apt:
    """The private apt that `recipe` is solved with.  Raises as make_apt() does."""
    return make_apt(
        recipe.sources,
        mirrors,
        cache,
        architecture=recipe.base.architecture,
        with_sources=has_sources(recipe),
    )


def say_nothing(_: str) -> None:
    """Progress for nobody."""


def make_lock(
    recipe: Recipe,
    mirrors: Mapping[str, str],
    cache: Path,
    *,
    previous: Lock | None,
    siblings: Sequence[Lock] = (),
    keep: bool = False,
    allow_older: bool = False,
    progress: Callable[[str], None] = say_nothing,
) -> Lock:
    """Resolve `recipe` against `mirrors`; writes nothing but below `cache`.

    With `keep`, versions of `previous` that a mirror still has are taken again.  Layers that equal
    those of `previous` or of a sibling keep their epoch.  With `allow_older`, Release files may be
    older than those of `previous`.  `progress` is told what happens and, in
    lines that start with `note:`, what a person should know.  Raises InputError, HostError and
    WorkError.
    """
    with storing(cache):
        apt = make_apt_of(recipe, mirrors, cache)
        with in_use(apt):
            for note in default_notes(recipe.sources, mirrors):
                progress(f"note: {note}")
            progress("Updating the package lists")
            if allow_older:
                forget_lists(apt)
            releases = load_releases(apt, progress)
            if previous:
                check_against_lock(releases, previous, allow_older=allow_older)
            progress(f"Solving {format_count(len(recipe.overlays) + 1, 'layer')}")
            solved = solve_keeping(apt, recipe, releases, previous if keep else None, progress)
            count = len(recipe.overlays) + 1
            builds = lock_builds(
                apt,
                recipe,
                solved[:count],
                solved[count:],
                apt.root / "preferences",
                cache,
                progress,
            )
        layers = locked_layers(recipe, solved[:count], builds, cache, progress)
    others = [*([previous] if previous else []), *siblings]
    dated = with_epochs(layers, releases, others)
    return Lock(
        profile=recipe.profile,
        architecture=recipe.base.architecture,
        base=recipe.base.name,
        epoch=image_epoch(dated, releases, others),
        sources=locked_sources(releases, int(time.time())),
        layers=dated,
    )


def locked_layers(
    recipe: Recipe,
    solved: Sequence[Solved],
    builds: Mapping[str, tuple[LockedBuild, ...]],
    cache: Path,
    progress: Callable[[str], None],
) -> list[LockedLayer]:
    """The layers with their wheels, without an epoch yet."""
    layers = []
    have: tuple[LockedPackage, ...] = ()
    for overlay, layer in zip(overlays_of(recipe), solved, strict=True):
        have += layer.packages
        python = lock_pythons(recipe, overlay, have, cache, progress)
        name, asked = layer.request.overlay, tuple(dict.fromkeys(layer.request.packages))
        built = builds.get(name, ())
        layers.append(LockedLayer(name, asked, layer.packages, python, epoch=0, builds=built))
    return layers


def requests_of(recipe: Recipe) -> tuple[Request, ...]:
    """What each layer asks for, the base first, and after the layers what each build asks for."""
    base = Request("", (*recipe.base.packages, recipe.base.kernel))
    layers = (
        Request(
            overlay.name,
            overlay.packages,
            file=overlay.path / OVERLAY_FILE,
            elsewhere=elsewhere(recipe),
        )
        for overlay in recipe.overlays
    )
    return (base, *layers, *build_requests(recipe))


def overlays_of(recipe: Recipe) -> tuple[Overlay | None, ...]:
    """The overlay of each layer, None for the base."""
    return (None, *recipe.overlays)


def solve_keeping(
    apt: Apt,
    recipe: Recipe,
    releases: tuple[Release, ...],
    kept: Lock | None,
    progress: Callable[[str], None],
) -> tuple[Solved, ...]:
    """Solve with the versions of `kept` where that can be done, else with the newest."""
    preferences = apt.root / "preferences"
    pins = render_preferences(releases)
    requests = requests_of(recipe)
    if kept:
        preferences.write_text(f"{render_kept(kept)}\n{pins}")
        try:
            return solve(apt, requests, preferences)
        except InputError:
            progress("note: the versions of the lock cannot all be kept; taking the newest of each")
    preferences.write_text(pins)
    return solve(apt, requests, preferences)


def render_kept(lock: Lock) -> str:
    """apt_preferences(5) that prefer the versions of a lock."""
    return "\n".join(
        f"Package: {package.name}\nPin: version {package.version}\nPin-Priority: {KEEP_PRIORITY}\n"
        for package in every_package(lock)
        if package.architecture != "source"
    )


def lock_pythons(
    recipe: Recipe,
    overlay: Overlay | None,
    packages: Sequence[LockedPackage],
    cache: Path,
    progress: Callable[[str], None],
) -> tuple[LockedPython, ...]:
    """The wheels of each environment of an overlay, whose root has `packages`."""
    return tuple(
        lock_python(env, python_of(packages, recipe.base.architecture, env), cache, progress)
        for env in (overlay.python if overlay else ())
    )


def with_epochs(
    layers: Sequence[LockedLayer], releases: Sequence[Release], others: Sequence[Lock]
) -> tuple[LockedLayer, ...]:
    """`layers` with their epochs.

    1. A layer that equals another lock's, all those below included, has the epoch it has there.
    2. Else it is that of the newest Release its packages come from.
    3. It is never before that of the layer below.
    """
    dates = release_dates(releases)
    known = {
        tuple(map(content, other.layers[: number + 1])): layer.epoch
        for other in reversed(others)
        for number, layer in enumerate(other.layers)
    }
    dated: list[LockedLayer] = []
    for number, layer in enumerate(layers):
        below = dated[-1].epoch if dated else 0
        newest = max((dates[package.source] for package in layer.packages), default=below)
        chain = tuple(map(content, layers[: number + 1]))
        epoch = max(below, known.get(chain, newest))
        dated.append(replace(layer, epoch=epoch))
    return tuple(dated)


def release_dates(releases: Sequence[Release]) -> dict[str, int]:
    """The date of the newest Release of each source, by its id."""
    dates: dict[str, int] = {}
    for release in releases:
        dates[release.source.id] = max(release.date, dates.get(release.source.id, 0))
    return dates


def image_epoch(
    layers: Sequence[LockedLayer], releases: Sequence[Release], others: Sequence[Lock]
) -> int:
    """The epoch of the whole image: that of its last layer, or of newer stuff of its builds.

    A toolchain that changes makes no layer of packages anew, but it makes a newer image.
    """
    last = layers[-1].epoch
    builds = [build for layer in layers for build in layer.builds]
    if not builds:
        return last
    whole = tuple(map(content, layers))
    for other in others:
        if (
            tuple(map(content, other.layers)) == whole
            and [build for layer in other.layers for build in layer.builds] == builds
        ):
            return max(last, other.epoch)
    dates = release_dates(releases)
    used = {package.source for build in builds for package in build.packages}
    used |= {package.source for build in builds for package in build.source_packages}
    return max([last, *(dates[source] for source in used)])


def content(layer: LockedLayer) -> tuple[tuple[str, ...], ...]:
    """What of a layer ends up in the root."""
    packages = [(p.name, p.version, p.architecture, p.sha256) for p in layer.packages]
    wheels = [(env.path, w.filename, w.sha256) for env in layer.python for w in env.wheels]
    return (*packages, *wheels)
