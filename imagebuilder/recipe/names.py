# SPDX-License-Identifier: Apache-2.0
"""Package names: overlays use Debian's, and `package-names` maps them to other distributions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.errors import InputError
from imagebuilder.package_managers import DISTRIBUTIONS
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.model_words import Entry
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.positions import KeyPath, load_document
from imagebuilder.recipe.render import Scope, TemplateProblem, Unknown
from imagebuilder.recipe.rules import ANY_PACKAGE, PACKAGE, Rule
from imagebuilder.settings import Settings

KEY = "package-names"


@dataclass(frozen=True)
class PackageNames:
    """The base's names of packages that have other names in Debian."""

    names: Mapping[str, tuple[str, ...]]

    def of(self, packages: Sequence[str]) -> tuple[str, ...]:
        """The base's names of `packages`; a version, `NAME=VERSION`, goes with each."""
        return tuple(dict.fromkeys(name for package in packages for name in self.each(package)))

    def each(self, package: str) -> Iterator[str]:
        name, equals, version = package.partition("=")
        for other in self.names.get(name, (name,)):
            yield f"{other}{equals}{version}"


def load_names(part: Part, scope: Scope, settings: Settings) -> PackageNames:
    """The names of an overlay's packages on the base of the scope.

    An unknown base, or a package that the overlay never installs whatever its vars, is a fault: a
    typo would otherwise have no effect.
    """
    written = part.file.package_names
    if not written:
        return PackageNames({})
    base = scope.renderer.names
    check_bases(written, scope, settings)
    packages = set(every_package(part, scope))
    names: dict[str, tuple[str, ...]] = {}
    for of in sorted(written, key=lambda name: name == base["suite"]):  # the suite's go last
        for name, others in written[of].items():
            path: KeyPath = (KEY, of, name)
            rendered = scope.text(path, name, PACKAGE)
            if rendered is None:
                continue
            if rendered not in packages and not scope.renderer.partial:
                what = f"the overlay has no package {quote(rendered)}"
                scope.fault(path, what, suggest(rendered, packages, closest=True))
            applies = of in (base["distribution"], base["suite"])
            found = render_names(path, others, scope, PACKAGE if applies else ANY_PACKAGE)
            if applies:
                names[rendered] = found
    return PackageNames(names)


def render_names(
    path: KeyPath, others: str | Sequence[str], scope: Scope, rule: Rule
) -> tuple[str, ...]:
    if isinstance(others, str):
        listed = [scope.text(path, others, rule)]
    else:
        listed = [scope.text((*path, n), other, rule) for n, other in enumerate(others)]
    return tuple(name for name in listed if name)


def every_package(part: Part, scope: Scope) -> Iterator[str]:
    """Every package that the overlay may ask for, whatever its vars are, without versions."""
    lists = [part.file.packages, *(build.packages for build in part.file.builds)]
    for entries in lists:
        for entry in entries:
            yield from rendered_name(entry, scope)


def rendered_name(entry: Entry, scope: Scope) -> Iterator[str]:
    """The name in an entry; nothing if it is invalid, which its own list reports."""
    with contextlib.suppress(TemplateProblem, Unknown):
        written = entry if isinstance(entry, str) else entry.name
        yield scope.renderer.text(written).partition("=")[0]


def check_bases(written: Mapping[str, object], scope: Scope, settings: Settings) -> None:
    """Each base of the mapping is a distribution, or the suite of a base."""
    known = {*DISTRIBUTIONS, str(scope.renderer.names["suite"])}
    if written.keys() <= known:
        return
    known |= set(every_suite(settings))
    for of in written.keys() - known:
        what = f"{quote(of)} is neither a distribution nor the suite of a base"
        scope.faults.append(scope.document.fault((KEY, of), what, suggest(of, known), of_key=True))


def every_suite(settings: Settings) -> Iterator[str]:
    """The suites of all bases; an unreadable base does not concern this profile."""
    for name, path in settings.find_bases().items():
        with contextlib.suppress(InputError):
            suite = load_document(path, name).value.get("suite")
            yield from [suite] if isinstance(suite, str) else []
