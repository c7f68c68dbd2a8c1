# SPDX-License-Identifier: Apache-2.0
"""The differences between a recipe and its lock, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from imagebuilder.digest import Json, digest_of
from imagebuilder.lock.types import Lock, LockedLayer
from imagebuilder.recipe.types import Overlay, Recipe, Source


def lock_differences(recipe: Recipe, lock: Lock) -> tuple[str, ...]:
    """Every difference, the base's first; empty if the lock is up to date."""
    return (
        *base_differences(recipe, lock),
        *source_differences(recipe, lock),
        *overlay_differences(recipe, lock),
    )


def base_differences(recipe: Recipe, lock: Lock) -> Iterator[str]:
    base = recipe.base
    if recipe.profile != lock.profile:
        yield f"the lock is for profile {lock.profile}"
    if base.name != lock.base:
        yield f"the base is now {base.name}, it was {lock.base}"
    if base.architecture != lock.architecture:
        yield f"the architecture is now {base.architecture}, it was {lock.architecture}"
    first = lock.layers[0].requested if lock.layers else ()
    yield from list_differences((*base.packages, base.kernel), first, "package", "the base")


def source_differences(recipe: Recipe, lock: Lock) -> Iterator[str]:
    now = {
        (source.id, suite): digest_of_source(source)
        for source in recipe.sources
        for suite in source.suites
    }
    then = {(source.id, source.suite): source.asked for source in lock.sources}
    after, before = ([f"{source} ({suite})" for source, suite in side] for side in (now, then))
    yield from list_differences(after, before, "source")
    changed = {key[0] for key in now.keys() & then.keys() if now[key] != then[key]}
    for source in sorted(changed):
        yield f"source {source} changed (address, suites, components, key, pins or snapshot)"


def digest_of_source(source: Source) -> str:
    """The digest of everything in the recipe that decides what is taken from a source."""
    pins: list[Json] = [list(source.pin_packages), source.pin_priority]
    if source.pin_version:
        pins.append(source.pin_version)
    content: dict[str, Json] = {
        "id": source.id,
        "suites": list(source.suites),
        "components": list(source.components),
        "origin": source.mirror or source.uri,
        "key": list(source.fingerprints) if source.uri else source.key.name,
        "pins": pins,
        "snapshot": source.snapshot,
    }
    if source.streams:
        content["streams"] = list(source.streams)
    return digest_of(content)


def overlay_differences(recipe: Recipe, lock: Lock) -> Iterator[str]:
    now = [overlay.name for overlay in recipe.overlays]
    then = [layer.overlay for layer in lock.layers if layer.overlay]
    yield from list_differences(now, then, "overlay")
    if [name for name in now if name in then] != [name for name in then if name in now]:
        yield f"the overlays are now in the order {', '.join(now)}"
    for overlay in recipe.overlays:
        if overlay.name in then:
            yield from layer_differences(overlay, lock.layer(overlay.name))


def layer_differences(overlay: Overlay, layer: LockedLayer) -> Iterator[str]:
    owner = f"overlay {overlay.name}"
    yield from list_differences(overlay.packages, layer.requested, "package", owner)
    now = {env.path: (env.digest, env.interpreter) for env in overlay.python}
    then = {env.path: (env.requirements, env.interpreter) for env in layer.python}
    yield from list_differences(now, then, "python environment", owner)
    for path in now:
        if path in then and now[path] != then[path]:
            part = "requirements" if now[path][0] != then[path][0] else "interpreter"
            yield f"the {part} of python environment {path} in {owner} changed"
    yield from build_differences(overlay, layer)


def build_differences(overlay: Overlay, layer: LockedLayer) -> Iterator[str]:
    """How an overlay's builds differ from its locked layer, in words."""
    owner = f"overlay {overlay.name}"
    now = {build.name: build for build in overlay.builds}
    then = {build.name: build for build in layer.builds}
    yield from list_differences(now, then, "build", owner)
    for name in now.keys() & then.keys():
        build, locked = now[name], then[name]
        requested = (build.packages, build.source_packages)
        wheels = build.python.digest if build.python else ""
        locked_wheels = locked.python.requirements if locked.python else ""
        if (*requested, wheels) != (locked.requested, locked.requested_sources, locked_wheels):
            yield f"the inputs of build {name} of {owner} changed"


def list_differences(
    now: Iterable[str], then: Iterable[str], thing: str, owner: str = ""
) -> Iterator[str]:
    after, before = dict.fromkeys(now), dict.fromkeys(then)
    for name in after:
        if name not in before:
            yield f"{thing} {name} was added" + (f" to {owner}" if owner else "")
    for name in before:
        if name not in after:
            yield f"{thing} {name} was removed" + (f" from {owner}" if owner else "")
