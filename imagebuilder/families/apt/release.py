# SPDX-License-Identifier: Apache-2.0
"""Release files: their fields, whether they are still valid, and whether they are those requested.

A signature proves who made a Release file, not that it is the requested one: a mirror can answer
with the Release file of another suite, or with an old one.  So what it claims to be is compared
with the requested suite and with the lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from imagebuilder.decode import END_OF_TIME
from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.families import freshness
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.apt.deb822 import parse_release
from imagebuilder.families.freshness import DAY, day_of
from imagebuilder.files import read_plain
from imagebuilder.lock.types import Lock, LockedSource
from imagebuilder.recipe.types import ExpiredRelease, Source
from imagebuilder.ui import format_count

ELSEWHERE = "the mirror serves another suite: use another mirror"


@dataclass(frozen=True)
class Release:
    """The Release file of one suite of a source; `fields` are as it has them."""

    source: Source
    suite: str
    fields: Mapping[str, str]
    sha256: str

    @property
    def date(self) -> int:
        """When it was made, in seconds since 1970; 0 if it does not say."""
        return parse_date(self.fields.get("Date", ""))

    @property
    def valid_until(self) -> int:
        """When it expires, in seconds since 1970; 0 if never."""
        return parse_date(self.fields.get("Valid-Until", ""))


def parse_date(text: str) -> int:
    """An RFC 5322 date in seconds since 1970, 0 for "".  Raises WorkError if it is invalid."""
    if not text:
        return 0
    try:
        seconds = int(parsedate_to_datetime(text).timestamp())
    except (ValueError, OverflowError):
        seconds = -1
    if not 0 <= seconds < END_OF_TIME:  # as in a lock
        raise WorkError(f"a Release file has no readable date: {text}")
    return seconds


def read_releases(apt: Apt) -> tuple[Release, ...]:
    """The Release files that apt has verified and kept."""
    wanted = "$(SOURCESENTRY)|$(RELEASE)|$(METAKEY)|$(FILENAME)"
    shown = apt.run(["apt-get", "indextargets", "--format", wanted]).stdout
    prefixes: dict[tuple[int, str], str] = {}
    for line in shown.splitlines():
        entry, suite, metakey, filename = line.split("|", 3)
        number = int(Path(entry).name.partition(".")[0])
        ending = metakey.replace("_", "%5f").replace("/", "_")
        # An archive without dists/ (`Suites: /`) has no name for its release.
        prefixes.setdefault((number, suite or "/"), filename[: filename.rindex(ending)])
    # apt does not keep empty indexes: a suite without packages has no target above, only a Release.
    for number, (uri, source) in enumerate(zip(apt.uris, apt.sources, strict=True)):
        for suite in source.suites:
            prefix = os.fspath(apt.lists / list_name(release_folder(uri, suite)))
            prefixes.setdefault((number, suite), prefix)
    return tuple(
        read_release(source, suite, prefixes[number, suite])
        for number, source in enumerate(apt.sources)
        for suite in source.suites
    )


def release_folder(uri: str, suite: str) -> str:
    """The folder of a suite's Release file; a suite that ends in a slash is an exact path without
    dists/ (sources.list(5)).
    """
    return f"{uri}/{suite.lstrip('./')}" if suite.endswith("/") else f"{uri}/dists/{suite}/"


def list_name(uri: str) -> str:
    """The name apt gives a file of the lists (URItoFileName() of apt-pkg/strutl.cc)."""
    return re.sub(r"^[a-z+]+:(//)?", "", uri).replace("_", "%5f").replace("/", "_")


def read_release(source: Source, suite: str, prefix: str) -> Release:
    """The Release of a suite from the list files with this prefix.  Raises WorkError."""
    for ending in ("InRelease", "Release"):
        path = Path(prefix + ending)
        if path.exists():
            content = read_plain(path)
            try:
                fields = parse_release(content.decode(errors="replace"))
            except ValueError as error:
                raise WorkError(
                    f"the Release file of {suite} was changed on its way: {error}",
                    where=f"source {source.id}",
                    hint="use another mirror, network or proxy",
                ) from error
            return Release(source, suite, fields, digest_of_bytes(content))
    raise WorkError(f"apt did not keep a Release file of {suite}", where=f"source {source.id}")


def check_ends(releases: tuple[Release, ...], now: int, progress: Callable[[str], None]) -> None:
    """Report each accepted expired Release; raise InputError for the others."""
    faults = []
    accepted: dict[ExpiredRelease, list[str]] = {}
    for release in releases:
        late = (now - release.valid_until) // DAY if release.valid_until else -1
        if late < 0:
            continue
        consent = release.source.expired_release
        if release.source.snapshot:
            progress(
                f"note: {release.suite} is the snapshot of {release.source.snapshot}, whose "
                "Release file is never checked for expiry"
            )
        elif consent and late <= consent.accept_days:
            ended = f"Release of {release.suite} expired {format_count(late, 'day')} ago"
            accepted.setdefault(consent, []).append(ended)
        else:
            faults.append(expired(release.source, release.suite, late, release.valid_until))
    for consent, ends in accepted.items():
        progress(
            f"note: {', '.join(ends)}; accepted for up to "
            f"{format_count(consent.accept_days, 'day')} because {consent.because}; an up-to-date "
            "mirror has newer security fixes"
        )
    if faults:
        raise InputError.of(faults)


def expired(source: Source, suite: str, late: int, valid_until: int) -> Fault:
    """The fault of an expired Release file, with or without a consent that is too short."""
    where = f"source {source.id}"
    what = f"Release of {suite} expired {format_count(late, 'day')} ago ({day_of(valid_until)})"
    if source.expired_release:
        limit = format_count(source.expired_release.accept_days, "day")
        return Fault(
            where,
            f"{what}, but only {limit} are accepted",
            "raise accept-days, or use a fresh mirror",
        )
    key = "expired-release"
    name = source.id if source.uri else suite
    entry = "source in its overlay" if source.uri else "archive in the base"
    where_to = f"in the site file, {key}: {{{name}: {{accept-days: {late + 30}, because: REASON}}}}"
    return Fault(
        where,
        f"{what}: the mirror is no longer updated, or somebody replays an old state of it",
        f"use a fresh mirror, or accept it: at the {entry}, {key}: "
        f"{{accept-days: {late + 30}, because: REASON}}; or {where_to}",
    )


def check_names(releases: Iterable[Release], progress: Callable[[str], None]) -> None:
    """Raise WorkError if a distribution's Release file is for a suite other than the requested one.

    Vendors name their suites as they like: theirs are only reported to `progress`.
    """
    faults = []
    for release in releases:
        is_flat = release.suite.endswith("/")  # has no dists/, and so no name for its suite
        if is_flat or not any(names_of(release)) or is_requested(release):
            continue
        names = render_names(names_of(release))
        what = f"requested {release.suite}, but its Release file says {names}"
        if release.source.mirror:
            faults.append(Fault(place(release), what, ELSEWHERE))
        else:
            progress(f"note: {place(release)}: {what}; the lock records these names")
    if faults:
        raise WorkError.of(faults)


def check_against_lock(releases: Iterable[Release], lock: Lock, *, allow_older: bool) -> None:
    """Raise WorkError if a Release file is for another suite than the one in `lock`, or older.

    A source that the recipe now takes from another address or snapshot is not compared.
    """
    freshness.check_against_lock(
        releases, lock, allow_older=allow_older, noun="Release file", changed=renamed
    )


def names_of(release: Release) -> tuple[str, str]:
    """The Suite and the Codename in a Release file, "" if missing."""
    return release.fields.get("Suite", ""), release.fields.get("Codename", "")


def is_requested(release: Release) -> bool:
    """Whether a Release file names the requested suite.

    As in apt, `buster/updates` may call itself `buster`.  Ubuntu's pockets (`noble-security`) share
    the codename of their release but are not the release.
    """
    suite, codename = names_of(release)
    for name in (release.suite, release.suite.rpartition("/")[0]):
        if name and (suite == name or (codename == name and not suite.startswith(f"{name}-"))):
            return True
    return False


def renamed(release: Release, before: LockedSource) -> Iterator[Fault]:
    """A fault if the suite was a different one when it was locked.

    `trixie` may turn from testing into stable; `stable` must not turn from trixie into forky.
    """
    now, then = names_of(release), (before.release_suite, before.codename)
    moved = is_requested(release) and now[1] in (then[1], release.suite)
    if not any(then) or now == then or moved:
        return
    yield Fault(
        place(release),
        f"requested {release.suite}, but its Release file says {render_names(now)}; "
        f"when it was locked, it said {render_names(then)}",
        "use another mirror; if the suite did change, remove the lock file and lock again",
    )


def place(release: Release) -> str:
    return f"source {release.source.id}"


def render_names(names: tuple[str, str]) -> str:
    listed = [f"{key}: {name}" for key, name in zip(("Suite", "Codename"), names, strict=True)]
    return ", ".join(text for text, name in zip(listed, names, strict=True) if name) or "no name"
