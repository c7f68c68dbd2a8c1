# SPDX-License-Identifier: Apache-2.0
"""Recipe and mirrors to Lock: a package manager's own solver and pip, without root and chroot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from imagebuilder.families.protocol import Archives, Chosen
from imagebuilder.families.registry import family_of
from imagebuilder.lock.builds import build_requests, elsewhere, every_package, layers_below
from imagebuilder.lock.file import check_lock
from imagebuilder.lock.request import Request
from imagebuilder.lock.storage import storing
from imagebuilder.lock.types import (
    Lock,
    LockedBuild,
    LockedLayer,
    LockedPackage,
    LockedPython,
    LockedSource,
)
from imagebuilder.lock.wheels import Python, lock_python, python_of
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.types import Base, PythonEnv, Recipe
from imagebuilder.ui import format_count

# Chooses the wheels of one environment.
Choose = Callable[[PythonEnv, Python], LockedPython]


def make_lock(
    recipe: Recipe,
    mirrors: Mapping[str, str],
    cache: Path,
    *,
    previous: Lock | None,
    siblings: Sequence[Lock] = (),
    keep: bool = False,
    allow_older: bool = False,
    wheels: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Lock:
    """Resolve `recipe` against `mirrors`; writes nothing but below `cache`.

    With `keep`, versions of `previous` that a mirror still has are taken again.  Layers that equal
    those of `previous` or of a sibling keep their epoch.  With `allow_older`, Release files may be
    older than those of `previous`.  Wheels that the pool `wheels` has get the size they have there.
    `progress` is told what happens and, in lines that start with `note:`, what a person should
    know.  Raises InputError, HostError and WorkError.
    """
    family = family_of(recipe.base)
    with storing(cache):
        solution = family.solve(
            recipe,
            requests_of(recipe),
            Archives(mirrors, cache),
            previous=previous,
            keep=keep,
            allow_older=allow_older,
            progress=progress,
        )
        count = len(recipe.overlays) + 1
        layers, aside = solution.chosen[:count], solution.chosen[count:]
        choose = partial(lock_python, cache=cache, progress=progress, pool=wheels)
        builds = lock_builds(recipe, layers, aside, choose)
        undated = locked_layers(recipe, layers, builds, choose)
    others = [*([previous] if previous else []), *siblings]
    dated = with_epochs(undated, solution.sources, others)
    lock = Lock(
        profile=recipe.profile,
        architecture=recipe.base.architecture,
        base=recipe.base.name,
        epoch=image_epoch(dated, solution.sources, others),
        sources=solution.sources,
        layers=dated,
    )
    check_lock(lock)
    if previous:
        tell_replaced(recipe, previous, lock, progress)
    return lock


def tell_replaced(
    recipe: Recipe, previous: Lock, lock: Lock, progress: Callable[[str], None]
) -> None:
    """Report packages that are now a vendor's and were the distribution's.

    A vendor's archive may have packages that its overlay is not about, in versions that no security
    team knows.
    """
    vendors = {source.id for source in recipe.sources if source.uri}
    before = {package.name: package.source for package in every_package(previous)}
    replaced: dict[str, list[str]] = {}
    for package in every_package(lock):
        if package.source in vendors and before.get(package.name, package.source) not in vendors:
            replaced.setdefault(package.source, []).append(f"{package.name} {package.version}")
    for source, names in replaced.items():
        progress(
            f"note: source {source} replaces {format_count(len(names), 'package')} of the "
            f"distribution: {', '.join(dict.fromkeys(names))}; a pin-priority below 500 for "
            "pin-packages of the source prefers those of the distribution"
        )


def locked_layers(
    recipe: Recipe,
    chosen: Sequence[Chosen],
    builds: Mapping[str, tuple[LockedBuild, ...]],
    choose: Choose,
) -> list[LockedLayer]:
    """The layers with their wheels, without an epoch yet."""
    layers = []
    have: tuple[LockedPackage, ...] = ()
    for overlay, layer in zip((None, *recipe.overlays), chosen, strict=True):
        have += layer.packages
        python = lock_pythons(recipe, overlay.python if overlay else (), have, choose)
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


def python_in(base: Base, packages: Sequence[LockedPackage], env: PythonEnv) -> Python:
    """The Python that `packages` bring for `env`.  Raises InputError when none does."""
    family = family_of(base)
    version = family.python(packages, Path(env.interpreter).name)
    return python_of(version, family.glibc(packages), base.architecture, env)


def lock_builds(
    recipe: Recipe,
    layers: Sequence[Chosen],
    aside: Sequence[Chosen],
    choose: Choose,
) -> dict[str, tuple[LockedBuild, ...]]:
    """The locked builds by overlay; `aside` is what was chosen for them, in the recipe's order."""
    found: dict[str, tuple[LockedBuild, ...]] = {}
    each = ((overlay, build) for overlay in recipe.overlays for build in overlay.builds)
    for (overlay, build), chosen in zip(each, aside, strict=True):
        below = layers[: layers_below(recipe, overlay)]
        packages = [package for one in (*below, chosen) for package in one.packages]
        wheels = [build.python] if build.python else []
        pythons = lock_pythons(recipe, wheels, packages, choose)
        locked = LockedBuild(
            name=build.name,
            requested=build.packages,
            requested_sources=build.source_packages,
            packages=chosen.packages,
            source_packages=chosen.sources,
            python=pythons[0] if pythons else None,
        )
        found[overlay.name] = (*found.get(overlay.name, ()), locked)
    return found


def lock_pythons(
    recipe: Recipe,
    environments: Sequence[PythonEnv],
    packages: Sequence[LockedPackage],
    choose: Choose,
) -> tuple[LockedPython, ...]:
    """The wheels of each environment of a root, or of a build's tree, that has `packages`."""
    return tuple(choose(env, python_in(recipe.base, packages, env)) for env in environments)


def with_epochs(
    layers: Sequence[LockedLayer], sources: Sequence[LockedSource], others: Sequence[Lock]
) -> tuple[LockedLayer, ...]:
    """`layers` with their epochs.

    1. A layer that equals another lock's, all those below included, has the epoch it has there.
    2. Else it is that of the newest suite its packages come from.
    3. It is never before that of the layer below.
    """
    dates = release_dates(sources)
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


def release_dates(sources: Sequence[LockedSource]) -> dict[str, int]:
    """The date of the newest suite of each source, by its id."""
    dates: dict[str, int] = {}
    for source in sources:
        dates[source.id] = max(source.date, dates.get(source.id, 0))
    return dates


def image_epoch(
    layers: Sequence[LockedLayer], sources: Sequence[LockedSource], others: Sequence[Lock]
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
    dates = release_dates(sources)
    used = {package.source for build in builds for package in build.packages}
    used |= {package.source for build in builds for package in build.source_packages}
    return max([last, *(dates[source] for source in used)])


def content(layer: LockedLayer) -> tuple[tuple[str, ...], ...]:
    """What of a layer ends up in the root."""
    packages = [(p.name, p.version, p.architecture, p.sha256) for p in layer.packages]
    wheels = [(env.path, w.filename, w.sha256) for env in layer.python for w in env.wheels]
    return (*packages, *wheels)
