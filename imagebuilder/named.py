# SPDX-License-Identifier: Apache-2.0
"""Check before a build whether the root will have the units, users and groups that overlays name.

Only certain errors are faults: earlier scripts and builds can make anything, and a package can make
what its maintainer scripts name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.families.registry import family_of
from imagebuilder.files import read_plain
from imagebuilder.lock.kept import Names, aliases_in
from imagebuilder.lock.types import Lock
from imagebuilder.phrases import quote, suggest
from imagebuilder.plan import Plan
from imagebuilder.recipe.load import sorted_faults
from imagebuilder.recipe.types import Named, NameKind, Overlay, Recipe, TreeFile
from imagebuilder.steps.config import ConfigStep

DECLARE = {NameKind.GROUP: "groups", NameKind.USER: "users"}


@dataclass(frozen=True)
class Brought:
    """What packages and overlays provide in a root."""

    units: frozenset[str]
    accounts: frozenset[str]
    words: frozenset[str]

    def has(self, named: Named) -> bool:
        """Whether something provides the name, or may."""
        if named.kind is NameKind.UNIT:
            template = re.sub(r"@.+\.", "@.", named.name)
            return any(name in self.units or name in self.words for name in (named.name, template))
        if named.name in self.accounts:
            return True
        # A word may be an option (`-gadm`), or part of a file's name (`adm.conf`).
        near = (word for word in self.words if named.name in word)
        as_word = re.compile(rf"(^|^-+\w?|[.:@\\]){re.escape(named.name)}($|[.:@\\])")
        return any(map(as_word.search, near))


def check_named(recipe: Recipe, lock: Lock, plan: Plan, packages: Path) -> None:
    """Raise InputError for every name in an overlay that nothing can provide.

    Nothing is certain, so nothing is raised, if a package that was installed earlier is no longer
    in the pool.
    """
    built = {s.step.overlay for s in plan.to_build if isinstance(s.step, ConfigStep)}
    for whole in (False, True):  # the files of packages are read only if needed
        try:
            names = family_of(recipe.base).names(packages, lock.packages, whole=whole)
        except WorkError:
            return
        faults = sorted_faults(find_faults(recipe, built, lock, names))
        if not faults:
            return
    raise InputError.of(faults)


def find_faults(
    recipe: Recipe, built: Iterable[str], lock: Lock, packages: Sequence[Names]
) -> Iterator[Fault]:
    """A fault for each name that neither these packages nor the overlays provide."""
    if any(overlay.builds for overlay in recipe.overlays):
        return
    units = set[str]().union(*(names.units for names in packages))
    accounts = {"root"}.union(*(names.accounts for names in packages))
    # Maintainer scripts may also make something with the name of their package.
    called = {package.name for package in lock.packages}
    words = frozenset(called.union(*(names.words for names in packages)))
    scripted = False
    for index, overlay in enumerate(recipe.overlays):
        units |= units_of(overlay.files)
        accounts |= accounts_of(overlay)
        brought = Brought(frozenset(units), frozenset(accounts), words)
        for named in overlay.named if overlay.name in built else ():
            # Scripts run after the accounts are made and before the units are enabled.
            free = scripted or (named.kind is NameKind.UNIT and overlay.scripts)
            if not free and not brought.has(named):
                yield fault_of(named, brought, recipe.overlays[index + 1 :])
        scripted = scripted or bool(overlay.scripts)


def units_of(files: Sequence[TreeFile]) -> set[str]:
    """The units in an overlay's files, and their aliases."""
    units = {posixpath.basename(file.target) for file in files if "/systemd/" in file.target}
    for file in files:
        if "/systemd/" in file.target and file.link is None:
            content = read_plain(file.source) if file.source else file.content or b""
            units |= aliases_in(content)
    return units


def accounts_of(overlay: Overlay) -> set[str]:
    """The groups and users of an overlay; each user also has a group of that name."""
    return {group.name for group in overlay.groups} | {user.name for user in overlay.users}


def fault_of(named: Named, brought: Brought, later: Sequence[Overlay]) -> Fault:
    """The fault of a name, with the likeliest fix; `later` are the overlays that follow."""
    if named.kind is NameKind.UNIT:
        what = f"{named.key}: no package and no overlay provides the unit {quote(named.name)}"
        return Fault(named.where, what, suggest(named.name, brought.units, closest=True))
    kind = named.kind.value
    what = f"{named.key}: no package makes the {kind} {quote(named.name)}"
    after = [overlay.name for overlay in later if named.name in accounts_of(overlay)]
    hint = (
        f"list the overlay {quote(after[0])}, which declares it, before this one" if after else ""
    )
    near = suggest(named.name, brought.accounts, closest=True)
    declare = f"declare it under `{DECLARE[named.kind]}:` of the overlay"
    return Fault(
        named.where, f"{what}, and no overlay declares it in time", hint or near or declare
    )
