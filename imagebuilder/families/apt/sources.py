# SPDX-License-Identifier: Apache-2.0
"""The sources as a lock and as apt's preferences have them."""

from __future__ import annotations

import re

from imagebuilder.errors import InputError
from imagebuilder.families.apt.apt import DEFAULT_PINS
from imagebuilder.families.apt.release import Release
from imagebuilder.lock.difference import digest_of_source
from imagebuilder.lock.types import LockedSource


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
