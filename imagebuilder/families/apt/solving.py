# SPDX-License-Identifier: Apache-2.0
"""Update the package lists and solve a recipe layer by layer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.families.apt.apt import DEFAULT_PINS, Apt, forget_lists, in_use, make_apt
from imagebuilder.families.apt.builds import check_headers, lock_source
from imagebuilder.families.apt.mirrors import default_notes
from imagebuilder.families.apt.names import find_suites
from imagebuilder.families.apt.release import Release, check_against_lock
from imagebuilder.families.apt.solve import Solved, solve
from imagebuilder.families.apt.update import load_releases
from imagebuilder.families.protocol import Archives, Chosen, Solution, Tell
from imagebuilder.lock.builds import every_package, has_sources
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.difference import digest_of_source
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import Lock, LockedSource
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.ui import format_count

# Above any pin of a recipe, so that locked versions are kept while the mirror has them.
KEEP_PRIORITY = 1002
# The package that unpacks source packages; it depends on tar's compressors and patch.
UNPACKER = "dpkg-dev"


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
    prepared = [with_unpacker(request) for request in requests]
    apt = make_apt_of(recipe, archives.mirrors, archives.cache)
    with in_use(apt):
        for note in default_notes(recipe.sources, archives.mirrors):
            progress(f"note: {note}")
        progress("Updating the package lists")
        if allow_older:
            forget_lists(apt)
        releases = load_releases(apt, progress)
        if previous:
            check_against_lock(releases, previous, allow_older=allow_older)
        layers = sum(not request.build for request in requests)
        progress(f"Solving {format_count(layers, 'layer')}")
        solved = solve_keeping(apt, prepared, releases, previous if keep else None, progress)
        below = [one for one in solved if not one.request.build]
        chosen = tuple(
            choose_build(apt, request, below[: request.layers], one)
            if request.build
            else Chosen(request, one.packages)
            for request, one in zip(requests, solved, strict=True)
        )
    return Solution(chosen, locked_sources(releases, int(time.time())))


def with_unpacker(request: Request) -> Request:
    """The request with the package that unpacks its source packages."""
    extra = (UNPACKER,) if request.sources else ()
    return replace(request, packages=tuple(dict.fromkeys((*request.packages, *extra))))


def choose_build(apt: Apt, request: Request, below: Sequence[Solved], solved: Solved) -> Chosen:
    """The content of a build's tree, on top of the layers.

    Raises InputError for headers of another kernel than the root's, and for a source package that
    no source has.
    """
    check_headers(below, solved)
    stanzas = [stanza for one in (*below, solved) for stanza in one.stanzas]
    preferences = apt.root / "preferences"
    sources = tuple(
        lock_source(apt, word, stanzas, request, preferences) for word in request.sources
    )
    return Chosen(request, solved.packages, sources)


def make_apt_of(recipe: Recipe, mirrors: Mapping[str, str], cache: Path) -> Apt:
    """The private apt for solving `recipe`.  Raises as make_apt()."""
    return make_apt(
        recipe.sources,
        mirrors,
        cache,
        architecture=recipe.base.architecture,
        with_sources=has_sources(recipe),
    )


def solve_keeping(
    apt: Apt,
    requests: Sequence[Request],
    releases: tuple[Release, ...],
    kept: Lock | None,
    progress: Callable[[str], None],
) -> tuple[Solved, ...]:
    """Solve with the versions of `kept` if possible, else with the newest."""
    preferences = apt.root / "preferences"
    pins = render_preferences(releases)
    if kept:
        preferences.write_text(f"{render_kept(kept)}\n{pins}")
        try:
            return solve(apt, requests, preferences)
        except InputError:
            progress("note: cannot keep all versions of the lock; using the newest of each")
    preferences.write_text(pins)
    return solve(apt, requests, preferences)


def render_kept(lock: Lock) -> str:
    return "\n".join(
        f"Package: {package.name}\nPin: version {package.version}\nPin-Priority: {KEEP_PRIORITY}\n"
        for package in every_package(lock)
        if package.architecture != "source"
    )


def read_sources(
    sources: Sequence[Source], archives: Archives, architecture: str, progress: Tell
) -> tuple[LockedSource, ...]:
    """Family.read_sources() from Release files, without package lists."""
    apt = make_apt(
        sources, archives.mirrors, archives.cache, architecture=architecture, with_packages=False
    )
    with in_use(apt):
        return locked_sources(load_releases(apt, progress), int(time.time()))


def suites_of(recipe: Recipe, archives: Archives, names: Sequence[str]) -> Suites:
    apt = make_apt_of(recipe, archives.mirrors, archives.cache)
    with in_use(apt):
        return find_suites(apt, names)


def locked_sources(releases: tuple[Release, ...], now: int) -> tuple[LockedSource, ...]:
    return tuple(locked_source(release, now) for release in releases)


def locked_source(release: Release, now: int) -> LockedSource:
    """One locked suite; the reason of a consent only if it was needed."""
    source = release.source
    over = 0 < release.valid_until < now
    consent = source.expired_release if over and not source.snapshot else None
    return LockedSource(
        id=source.id,
        suite=release.suite,
        components=source.components,
        date=release.date,
        valid_until=release.valid_until,
        release_sha256=release.sha256,
        origin=source.mirror or source.uri,
        asked=digest_of_source(source),
        snapshot=source.snapshot,
        expired_because=consent.because if consent else "",
        instead=source.instead,
        release_suite=release.fields.get("Suite", ""),
        codename=release.fields.get("Codename", ""),
    )


def render_preferences(releases: tuple[Release, ...]) -> str:
    """apt_preferences(5) for the sources with pins other than the default.

    An archive is identified by the fields of its Release file, because several mirrors may have the
    same host (a proxy).
    """
    stanzas = []
    for release in releases:
        source = release.source
        if source.pin_version:
            # The first record that matches a version counts: other versions of these packages
            # keep the default of 500.
            stanzas.append(
                f"Package: {' '.join(source.pin_packages)}\n"
                f"Pin: version {source.pin_version}\n"
                f"Pin-Priority: {source.pin_priority}\n"
            )
            continue
        if (source.pin_packages, source.pin_priority) == DEFAULT_PINS:
            continue
        stanzas.append(
            f"Package: {' '.join(source.pin_packages)}\n"
            f"Pin: release {release_words(release)}\n"
            f"Pin-Priority: {source.pin_priority}\n"
        )
    return "\n".join(stanzas)


def release_words(release: Release) -> str:
    """The identity of an archive in the words of apt_preferences(5)."""
    letters = {"o": "Origin", "l": "Label", "a": "Suite", "n": "Codename"}
    words = [
        f"{letter}={release.fields[name]}"
        for letter, name in letters.items()
        if release.fields.get(name) and not re.search(r"[,\n]", release.fields[name])
    ]
    if not words:
        raise InputError(
            "its Release file has no Origin, Label, Suite or Codename to pin it by",
            where=f"source {release.source.id}",
            hint="remove pin-packages and pin-priority",
        )
    return ",".join(words)
