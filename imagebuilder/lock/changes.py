# SPDX-License-Identifier: Apache-2.0
"""The packages that differ between two locks, and which new ones are from a security pocket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from imagebuilder.lock.builds import environments, every_package
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.ui import format_count

# The suites that have a package in a version, by (name, version).
Suites = Mapping[tuple[str, str], Sequence[str]]


@dataclass(frozen=True)
class PackageChange:
    """A package of the lock that changed; "" is absent.

    `security` is whether the new version came from a security pocket: `suite` names it then.
    """

    name: str
    old: str
    new: str
    security: bool = False
    suite: str = ""

    def __str__(self) -> str:
        """`openssl 3.5.1-1 -> 3.5.1-2`, `zlib1g 1.3 (added)`, `zlib1g 1.3 (removed)`."""
        if self.old and self.new:
            return f"{self.name} {self.old} -> {self.new}"
        return f"{self.name} {self.new or self.old} ({'added' if self.new else 'removed'})"


def render_change(change: PackageChange) -> str:
    """The same with its mark: `security: openssl 3.5.1-1 -> 3.5.1-2 (trixie-security)`."""
    return f"security: {change} ({change.suite})" if change.security else str(change)


def counted(changes: Sequence[PackageChange]) -> str:
    """`5 packages changed, 2 of them security`."""
    if not changes:
        return "no package changed"
    security = sum(change.security for change in changes)
    count = format_count(len(changes), "package")
    return f"{count} changed" + (f", {security} of them security" if security else "")


def find_changes(
    old: Lock, new: Lock, recipe: Recipe, ask: Callable[[Sequence[str]], Suites]
) -> tuple[PackageChange, ...]:
    """What differs between two locks of `recipe`, those from a security pocket first.

    A lock names a package's source, which is often one suite.  If it has several, `ask` returns
    which of them have the new versions of the packages with these names.
    """
    before, after = versions_of(old), versions_of(new)
    names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    sources = {source.id: source for source in recipe.sources}
    packages = {package.name: package for package in every_package(new)}
    unsure = [n for n in names if n in packages and is_mixed(sources.get(packages[n].source))]
    suites = ask(unsure) if unsure else {}
    changes = [
        change_of(name, before.get(name, ""), after.get(name, ""), packages, sources, suites)
        for name in names
    ]
    return tuple(sorted(changes, key=lambda change: (not change.security, change.name)))


def join_changes(
    first: Sequence[PackageChange], later: Sequence[PackageChange]
) -> tuple[PackageChange, ...]:
    """What differs after both: `later` begins with the lock that `first` led to."""
    found = {change.name: change for change in first}
    for change in later:
        before = found.get(change.name, change)
        secure = change if change.security or not change.new else before
        found[change.name] = replace(
            change, old=before.old, security=secure.security, suite=secure.suite
        )
    changes = (change for change in found.values() if change.old != change.new)
    return tuple(sorted(changes, key=lambda change: (not change.security, change.name)))


def versions_of(lock: Lock) -> dict[str, str]:
    """The version of every package and wheel; all of them if builds have a different one."""
    found: dict[str, list[str]] = {}
    for name, version in everything(lock):
        if version not in found.setdefault(name, []):
            found[name].append(version)
    return {name: ", ".join(versions) for name, versions in found.items()}


def everything(lock: Lock) -> Iterator[tuple[str, str]]:
    yield from ((package.name, package.version) for package in every_package(lock))
    for layer in lock.layers:
        yield from ((w.name, w.version) for env in environments(layer) for w in env.wheels)


def change_of(
    name: str,
    old: str,
    new: str,
    packages: Mapping[str, LockedPackage],
    sources: Mapping[str, Source],
    suites: Suites,
) -> PackageChange:
    """The change of one package; removed packages and wheels are never from a pocket."""
    package = packages.get(name)
    source = sources.get(package.source) if package and new else None
    if package is None or source is None:
        return PackageChange(name, old, new)
    having = suites.get((name, package.version), ()) if is_mixed(source) else source.suites
    pocket = next((suite for suite in having if is_security(suite)), "")
    return PackageChange(name, old, new, security=bool(pocket), suite=pocket)


def is_security(suite: str) -> bool:
    """Whether a suite is a security pocket: trixie-security, noble-security, noble-apps-security.

    Distributions distinguish them only by name; their Release files have no field for it.
    """
    return "security" in suite


def is_mixed(source: Source | None) -> bool:
    """Whether only some suites of a source are security pockets."""
    if source is None:
        return False
    return len({is_security(suite) for suite in source.suites}) > 1
