# SPDX-License-Identifier: Apache-2.0
"""Check the overlays of one profile against each other."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from imagebuilder.errors import Fault
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.generated import all_files, key_of
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.positions import KeyPath, Origin
from imagebuilder.recipe.resolve import Merged
from imagebuilder.recipe.types import Base, Overlay, TreeFile, User


def check_relations(
    merged: Merged, parts: Mapping[str, Part], catalog: Sequence[str], faults: list[Fault]
) -> None:
    """`requires` come before, `conflicts` are absent, and nothing requires itself."""
    places = dict(merged.overlays)
    order = list(places)
    cycles = find_cycles(parts)
    for cycle in cycles:
        part = parts[cycle[0]]
        index = part.file.requires.index(cycle[1])
        what = f"overlays require each other: {' -> '.join(cycle)}"
        faults.append(part.document.fault(("requires", index), what))
    circular = {name for cycle in cycles for name in cycle}
    for part in parts.values():
        check_names(part, catalog, faults)
        for name in part.file.requires:
            if name in catalog and not {name, part.name} <= circular:
                left_out = merged.removed.get(name)
                check_required(part, name, order, places[part.name], left_out, faults)
        for name in part.file.conflicts:
            if name in places:
                what = f"{quote(part.name)} conflicts with {quote(name)}"
                faults.append(places[part.name].fault(what, "remove one of them"))


def check_names(part: Part, catalog: Sequence[str], faults: list[Fault]) -> None:
    for key, names in (("requires", part.file.requires), ("conflicts", part.file.conflicts)):
        for index, name in enumerate(names):
            if name not in catalog:
                what, hint = f"no overlay named {quote(name)}", suggest(name, catalog)
                faults.append(part.document.fault((key, index), what, hint))


def check_required(
    part: Part,
    name: str,
    order: Sequence[str],
    place: Origin,
    left_out: Origin | None,
    faults: list[Fault],
) -> None:
    """An overlay that `part` requires is listed before it and not removed by `without`."""
    what = f"{quote(part.name)} requires {quote(name)}"
    if name not in order and left_out:
        hint = f"remove {quote(part.name)} too, or keep {quote(name)}"
        faults.append(left_out.fault(what, hint))
    elif name not in order:
        faults.append(place.fault(f"{what}, which is not listed", f"add {quote(name)} before it"))
    elif order.index(name) > order.index(part.name):
        faults.append(place.fault(f"{what}, which is listed after it", "swap them"))


def find_cycles(parts: Mapping[str, Part]) -> list[tuple[str, ...]]:
    """Each cycle of `requires` once, from its first overlay in the profile's order back to it."""
    cycles: list[tuple[str, ...]] = []
    for start in parts:
        if not any(start in cycle for cycle in cycles) and (cycle := path_back(start, parts)):
            cycles.append(cycle)
    return cycles


def path_back(start: str, parts: Mapping[str, Part]) -> tuple[str, ...]:
    """The shortest path along `requires` from an overlay back to itself; empty if none."""
    paths: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while paths:
        path = paths.pop(0)
        for name in parts[path[-1]].file.requires:
            if name == start:
                return (*path, start)
            if name in parts and name not in seen:
                seen.add(name)
                paths.append((*path, name))
    return ()


def check_tree(overlays: Iterable[Overlay], parts: Mapping[str, Part], faults: list[Fault]) -> None:
    """No two overlays put different things at one path, or a file where another has a folder."""
    placed: dict[str, tuple[str, TreeFile]] = {}
    for overlay in overlays:
        part = parts[overlay.name]
        own = set(overlay.files)
        for file in all_files(overlay):
            where = f"{part.shown}/files{file.target}"
            if file not in own:
                where = part.document.fault((key_of(file.target),), "", of_key=True).where
            name, other = placed.setdefault(file.target, (overlay.name, file))
            if file in own and name == overlay.name:
                continue  # X and X.j2: reported where the files are read
            if lands_as(other) != lands_as(file) and name == overlay.name:
                what = f"this key generates {file.target}, which files/ also contains"
                faults.append(Fault(where, what, "keep one of them"))
            elif lands_as(other) != lands_as(file):
                what = f"the overlay {quote(name)} puts a different file at {file.target}"
                faults.append(Fault(where, what, "move it into one overlay that both require"))
    for target, (name, _) in placed.items():
        for folder in folders_of(target):
            if folder in placed:
                where = f"{parts[name].shown}/files{target}"
                what = f"the overlay {quote(placed[folder][0])} has a file or link at {folder}"
                faults.append(Fault(where, what))


def check_twice(
    overlays: Iterable[Overlay], parts: Mapping[str, Part], faults: list[Fault]
) -> None:
    """No two Python environments have one path, and no two accounts that differ have one name."""
    environments: dict[str, str] = {}
    users: dict[str, tuple[str, User]] = {}
    for overlay in overlays:
        part = parts[overlay.name]
        for environment in overlay.python:
            if other := environments.get(environment.path):
                paths = [each.path for each in part.file.python]
                path: KeyPath = ("python", paths.index(environment.path), "path")
                what = f"the overlay {quote(other)} also creates {environment.path}"
                hint = "give one of them another path"
                faults.append(part.document.fault(path, what, hint))
            environments[environment.path] = overlay.name
        for user in overlay.users:
            other, first = users.setdefault(user.name, (overlay.name, user))
            if first != user:
                names = [each.name for each in part.file.users]
                at = (names.index(user.name), "name") if user.name in names else ()
                what = f"the overlay {quote(other)} declares {user.name} differently"
                hint = "declare it in one overlay that both require"
                faults.append(part.document.fault(("users", *at), what, hint))


def lands_as(file: TreeFile) -> TreeFile:
    """The file without the source of its bytes: equal if the result in the root is the same."""
    return replace(file, source=None, content=None)


def folders_of(target: str) -> Iterable[str]:
    """Every folder above an absolute path except the root."""
    folder = posixpath.dirname(target)
    while folder != "/":
        yield folder
        folder = posixpath.dirname(folder)


def check_sources(parts: Mapping[str, Part], faults: list[Fault]) -> None:
    """A source's name is unique, because locks and messages refer to it."""
    owners: dict[str, str] = {}
    for part in parts.values():
        for index, source in enumerate(part.file.sources):
            owner = owners.setdefault(source.name, f"{part.name}[{index}]")
            if owner != f"{part.name}[{index}]":
                name = owner.rpartition("[")[0]
                what = f"the overlay {quote(name)} also has a source of this name"
                hint = "move it into one overlay that both require"
                faults.append(part.document.fault(("sources", index, "name"), what, hint))


def check_streams(
    base: Base, overlays: Iterable[Overlay], parts: Mapping[str, Part], faults: list[Fault]
) -> None:
    """A module has one stream in all repositories of a profile."""
    enabled: dict[str, str] = {}
    for source in base.sources:
        enabled |= {stream.partition(":")[0]: stream for stream in source.streams}
    for overlay in overlays:
        part = parts[overlay.name]
        places = {model.name: number for number, model in enumerate(part.file.sources)}
        for source in overlay.sources:
            for stream in source.streams:
                other = enabled.setdefault(stream.partition(":")[0], stream)
                if other != stream:
                    what = f"the profile also enables {quote(other)}, and a module has one stream"
                    path = ("sources", places[source.id], "modules")
                    faults.append(part.document.fault(path, what, "enable the same stream in both"))
