# SPDX-License-Identifier: Apache-2.0
"""Read the repositories' indexes and solve a recipe layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from imagebuilder.errors import InputError
from imagebuilder.families.protocol import Archives, Chosen, Solution, Tell
from imagebuilder.families.rpm.candidates import (
    Candidates,
    Solvable,
    prefer,
    provided_by,
    read_candidates,
    version_of,
)
from imagebuilder.families.rpm.indexes import (
    check_against_lock,
    last_indexes,
    load_indexes,
    locked_sources,
)
from imagebuilder.families.rpm.mirrors import default_notes, repositories_of
from imagebuilder.families.rpm.modules import module_filter
from imagebuilder.families.rpm.repository import Index
from imagebuilder.families.rpm.solve import Layer, lock_layer, solve
from imagebuilder.lock.builds import every_package
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.recipe.types import Recipe
from imagebuilder.ui import format_count


def solve_recipe(
    recipe: Recipe,
    requests: Sequence[Request],
    archives: Archives,
    *,
    previous: Lock | None,
    keep: bool,
    allow_older: bool,
    progress: Tell,
) -> Solution:
    check_requests(requests)
    repositories = repositories_of(recipe.sources, archives.mirrors, recipe.base.architecture)
    for note in default_notes(recipe.sources, archives.mirrors):
        progress(f"note: {note}")
    progress("Updating the package lists")
    indexes = load_indexes(repositories, archives.cache, progress)
    if previous:
        check_against_lock(indexes, previous, allow_older=allow_older)
    layers = sum(not request.build for request in requests)
    progress(f"Solving {format_count(layers, 'layer')}")
    candidates = read_candidates(indexes, recipe.base.architecture)
    kept = list(every_package(previous)) if keep and previous else []
    solved = solve_keeping(candidates, visibility(indexes), requests, kept, progress)
    chosen = {layer.request: lock_layer(candidates, layer) for layer in solved}
    return Solution(
        tuple(Chosen(request, chosen[request]) for request in requests), locked_sources(indexes)
    )


def check_requests(requests: Sequence[Request]) -> None:
    """Raise InputError if a build wants source packages."""
    for request in requests:
        if request.sources:
            raise InputError(
                f"source packages are not built from RPMs: {', '.join(request.sources)}",
                where=request.name,
                hint="fetch the sources in the build's script (network: true), or limit the "
                "build to other distributions with `when:`",
            )


def visibility(indexes: Sequence[Index]) -> Callable[[Solvable], bool]:
    """Whether a package is visible as far as modules decide."""
    modules = module_filter(indexes)

    def is_visible(solvable: Solvable) -> bool:
        provides = provided_by(solvable) if modules.names else ()
        return modules.is_visible(solvable.name, version_of(solvable), solvable.arch, provides)

    return is_visible


def solve_keeping(
    candidates: Candidates,
    is_visible: Callable[[Solvable], bool],
    requests: Sequence[Request],
    kept: Collection[LockedPackage],
    progress: Tell,
) -> tuple[Layer, ...]:
    """Solve with the versions of `kept` if possible, else with the newest."""
    if kept:
        try:
            names = {package.name for package in kept}
            return solve(candidates, prefer(candidates, is_visible, kept), requests, names)
        except InputError:
            progress("note: cannot keep all versions of the lock; using the newest of each")
    return solve(candidates, prefer(candidates, is_visible, ()), requests)


def suites_of(recipe: Recipe, archives: Archives, names: Collection[str]) -> Suites:
    """Family.find_suites() from what the last solve_recipe() read."""
    repositories = repositories_of(recipe.sources, archives.mirrors, recipe.base.architecture)
    indexes = last_indexes(repositories, archives.cache, lambda _: None)
    candidates = read_candidates(indexes, recipe.base.architecture)
    found: dict[tuple[str, str], list[str]] = {}
    for solvable in candidates.every:
        if solvable.name in names:
            suite = candidates.index_of(solvable).repository.suite
            found.setdefault((solvable.name, version_of(solvable)), []).append(suite)
    return found
