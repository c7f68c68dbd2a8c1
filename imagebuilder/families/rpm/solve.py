# SPDX-License-Identifier: Apache-2.0
"""libsolv chooses what each layer adds to those before it.

The packages of the layers below are wanted at exactly their versions, so that a layer can only add
to them.  Weak dependencies are not installed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import solv

from imagebuilder.errors import Fault, InputError
from imagebuilder.families.nearest import mapping_hint, nearest_names
from imagebuilder.families.rpm.candidates import (
    Candidates,
    Solvable,
    is_version,
    locked_package,
    provides_version,
    version_of,
)
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import LockedPackage

# What every base has: it installs the packages of the layers above.
FIRST = ("rpm",)
# Packages that fit one version of another alone: headers, and the kernel that is to load modules
# made with them.
FOLLOWS = {"kernel-devel": "kernel-core", "kernel-devel-matched": "kernel-core"}
# A path in a dependency, which may be one of several in brackets.
PATH = re.compile(r"(?<![^\s(])/[^\s)]+")
VERSIONS = 6
MOST_PROBLEMS = 4


@dataclass(frozen=True)
class Layer:
    """What libsolv chose for one request, by name."""

    request: Request
    chosen: Mapping[str, Solvable]


@dataclass(frozen=True)
class Wish:
    """A word of a request: a package, or what one provides, and the packages that it may be."""

    word: str
    name: str
    packages: tuple[Solvable, ...]


def solve(
    candidates: Candidates,
    visible: Sequence[Solvable],
    requests: Sequence[Request],
    kept: Collection[str] = (),
) -> tuple[Layer, ...]:
    """Solve every layer in turn; builds come last.

    Packages of the names in `kept` are not replaced by others that obsolete them.
    Raises InputError for unknown packages (all at once) and for what cannot be satisfied.
    """
    candidates.show_only(visible)
    named: dict[str, list[Solvable]] = {}
    for solvable in visible:
        named.setdefault(solvable.name, []).append(solvable)
    if unknown := unknown_packages(candidates, named, requests):
        raise InputError.of(unknown)
    wanted = {word for request in requests for word in words_of(request)}.difference(kept)
    instead = replacements(visible, {name: newest(named[name]) for name in wanted & named.keys()})
    layers: tuple[Layer, ...] = ()
    aside: tuple[Layer, ...] = ()
    for request in requests:
        below = layers[: request.layers] if request.build else layers
        layer = solve_layer(candidates, visible, named, instead, request, below)
        if request.build:
            aside = (*aside, layer)
        else:
            layers = (*layers, layer)
    return (*layers, *aside)


def words_of(request: Request) -> tuple[str, ...]:
    return request.packages if request.overlay else (*FIRST, *request.packages)


def solve_layer(
    candidates: Candidates,
    visible: Sequence[Solvable],
    named: Mapping[str, Sequence[Solvable]],
    instead: Mapping[str, Sequence[Solvable]],
    request: Request,
    below: Sequence[Layer],
) -> Layer:
    have = {name: each for layer in below for name, each in layer.chosen.items()}
    wishes = [find_wish(candidates, named, instead, have, word) for word in words_of(request)]
    if not wishes:
        return Layer(request, {})
    solver, problems = run_solver(candidates, have.values(), wishes)
    decided = {each.id for each in chain(have.values(), *(wish.packages for wish in wishes))}
    chosen = [] if problems else solver.transaction().newsolvables()
    if not candidates.with_files and (problems or needs_files(candidates, named, chosen, decided)):
        candidates.read_files()
        candidates.show_only(visible)
        solver, problems = run_solver(candidates, have.values(), wishes)
    if problems:
        raise unsolvable(problems, request, below)
    found = {each.name: each for each in solver.transaction().newsolvables()}
    return Layer(request, {name: found[name] for name in sorted(found) if name not in have})


def run_solver(
    candidates: Candidates, have: Collection[Solvable], wishes: Sequence[Wish]
) -> tuple[Any, Sequence[Any]]:
    """libsolv's solver after its work, and its problems."""
    pool, job = candidates.pool, solv.Job
    jobs = [pool.Job(job.SOLVER_INSTALL | job.SOLVER_SOLVABLE, each.id) for each in have]
    for wish in wishes:
        if wish.packages:
            one = pool.towhatprovides([each.id for each in wish.packages])
            jobs.append(pool.Job(job.SOLVER_INSTALL | job.SOLVER_SOLVABLE_ONE_OF, one))
        else:
            name = pool.str2id(wish.name)
            jobs.append(pool.Job(job.SOLVER_INSTALL | job.SOLVER_SOLVABLE_PROVIDES, name))
    solver = pool.Solver()
    solver.set_flag(solv.Solver.SOLVER_FLAG_IGNORE_RECOMMENDED, 1)
    return solver, solver.solve(jobs)


def needs_files(
    candidates: Candidates,
    named: Mapping[str, Sequence[Solvable]],
    chosen: Sequence[Solvable],
    decided: Collection[int],
) -> bool:
    """Whether file lists may change what was chosen; those with ids in `decided` were no choice.

    It took an old version of a package, whose new one may require a file that no package seemed to
    have; or one that it took conflicts with such a file, or requires it if something else is so.
    """
    for each in chosen:
        if each.id not in decided:
            best = {package.id for package in newest(named[each.name])}
            if each.id not in best:
                return True
        words = chain(
            each.lookup_deparray(solv.SOLVABLE_REQUIRES),
            each.lookup_deparray(solv.SOLVABLE_CONFLICTS),
        )
        paths = PATH.findall("\n".join(map(str, words)))
        if not all(providers(candidates, path) for path in paths):
            return True
    return False


def replacements(
    visible: Sequence[Solvable], wanted: Mapping[str, Sequence[Solvable]]
) -> Mapping[str, Sequence[Solvable]]:
    """Packages that obsolete those in `wanted`, by their names: dnf(8) installs them instead."""
    found: dict[str, list[Solvable]] = {}
    for each in visible:
        for obsolete in each.lookup_deparray(solv.SOLVABLE_OBSOLETES):
            name = str(obsolete).partition(" ")[0]
            packages = wanted.get(name, ())
            if each.name != name and any(
                package.matchesdep(solv.SOLVABLE_NAME, obsolete) for package in packages
            ):
                found.setdefault(name, []).append(each)
    return found


def find_wish(
    candidates: Candidates,
    named: Mapping[str, Sequence[Solvable]],
    instead: Mapping[str, Sequence[Solvable]],
    have: Mapping[str, Solvable],
    word: str,
) -> Wish:
    """The packages of `word`, NAME or NAME=VERSION; none if it has no version and others provide
    it.
    """
    name, _, version = word.partition("=")
    leader = have.get(FOLLOWS.get(name, ""))
    if leader and not version:
        version = version_of(leader)
    if version:
        packages = of_version(candidates, named, name, version)
    else:
        # Of a name that is requested only the newest counts, as with dnf's `best`.
        packages = [*newest(named.get(name, ())), *instead.get(name, ())]
    return Wish(word, name, tuple(packages))


def of_version(
    candidates: Candidates, named: Mapping[str, Sequence[Solvable]], name: str, version: str
) -> list[Solvable]:
    """The packages `name` of a version, or of others that provide it in that version."""
    own = [each for each in named.get(name, ()) if is_version(each, version)]
    return own or [
        each for each in providers(candidates, name) if provides_version(each, name, version)
    ]


def newest(packages: Sequence[Solvable]) -> list[Solvable]:
    best: list[Solvable] = []
    for each in packages:
        order = each.evrcmp(best[0]) if best else 0
        best = [each] if order > 0 else [*best, each] if order == 0 else best
    return best


def unknown_packages(
    candidates: Candidates,
    named: Mapping[str, Sequence[Solvable]],
    requests: Sequence[Request],
) -> list[Fault]:
    """A fault for every package of any request that no source has."""
    faults = []
    for request in requests:
        for word in dict.fromkeys(words_of(request)):
            name, _, version = word.partition("=")
            packages = named.get(name, ())
            if version and not of_version(candidates, named, name, version):
                what = f"no source has {name} at version {version}"
            elif not packages and not providers(candidates, name):
                what = f"no source has a package named {name}"
            else:
                continue
            hint = nearest(packages, name, list(named)) + mapping_hint(request, name)
            faults.append(Fault(request.place_of(name), what, hint))
    return faults


def providers(candidates: Candidates, name: str) -> Sequence[Solvable]:
    """The packages that provide `name`."""
    found = candidates.pool.str2id(name, 0)
    return candidates.pool.whatprovides(found) if found else ()


def nearest(packages: Sequence[Solvable], name: str, names: Sequence[str]) -> str:
    if not packages:
        return nearest_names(name, names)
    versions = dict.fromkeys(map(version_of, packages))
    return f"the sources have {', '.join(list(versions)[:VERSIONS])}; use one of them"


def unsolvable(problems: Sequence[Any], request: Request, below: Sequence[Layer]) -> InputError:
    """Why libsolv could not satisfy a layer, in its words."""
    rules = list(chain.from_iterable(problem.findallproblemrules() for problem in problems))
    infos = list(chain.from_iterable(rule.allinfos() for rule in rules))
    words = list(dict.fromkeys(info.problemstr() for info in infos))
    shown = [*words[:MOST_PROBLEMS], *brought_by(" ".join(words), below)]
    return InputError(
        "its packages cannot be installed together\n    " + "\n    ".join(shown),
        where=request.name,
        hint="remove one of the packages named above, or request another version of it",
    )


def brought_by(words: str, below: Sequence[Layer]) -> list[str]:
    """Lines with the layer of each package that `words` names."""
    named = set(re.findall(r"\S+", words))
    return [
        f"{each.name} {version_of(each)} is from {layer.request.name}"
        for layer in below
        for each in layer.chosen.values()
        if str(each) in named or each.name in named
    ]


def lock_layer(candidates: Candidates, layer: Layer) -> tuple[LockedPackage, ...]:
    """What the lock says of a layer.  Raises WorkError if a record is malformed."""
    return tuple(locked_package(candidates, each) for each in layer.chosen.values())
