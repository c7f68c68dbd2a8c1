# SPDX-License-Identifier: Apache-2.0
"""Compare what a Release file claims to be with the requested suite and with the lock.

A signature proves who made a Release file, not that it is the requested one: a mirror can answer
with the Release file of another suite, or with an old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from imagebuilder.errors import Fault, WorkError
from imagebuilder.families.apt.release import DAY, Release, day_of
from imagebuilder.lock.types import Lock, LockedSource
from imagebuilder.ui import format_count

# A Release file without a Valid-Until that is older than this is mentioned.
OLD_DAYS = 60
ELSEWHERE = "the mirror serves another suite: use another mirror"


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
    locked = {(source.id, source.suite): source for source in lock.sources}
    faults: list[Fault] = []
    for release in releases:
        before = locked.get((release.source.id, release.suite))
        if before and is_same_place(release, before):
            faults.extend(renamed(release, before))
            if not allow_older:
                faults.extend(older(release, before, lock.profile))
    if faults:
        raise WorkError.of(faults)


def tell_old(releases: Sequence[Release], now: int, progress: Callable[[str], None]) -> None:
    """Report old Release files without a Valid-Until: a frozen mirror has such files too."""
    old = [
        f"{named(release)} for {format_count((now - release.date) // DAY, 'day')}"
        for release in releases
        if release.date
        and not release.valid_until
        and not release.source.snapshot
        and now - release.date > OLD_DAYS * DAY
    ]
    if old:
        progress(
            f"note: no update in {', '.join(old)}: normal for a stable suite between point "
            "releases; if the distribution has published one, use another mirror"
        )


def named(release: Release) -> str:
    """A suite, with its source if that is a vendor's."""
    source = release.source
    return release.suite if source.mirror else f"{release.suite} of source {source.id}"


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


def is_same_place(release: Release, before: LockedSource) -> bool:
    """Whether the recipe still takes a source from the address and snapshot in the lock."""
    source = release.source
    place_now = (source.mirror or source.uri, source.snapshot)
    return place_now == (before.origin or place_now[0], before.snapshot)


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


def older(release: Release, before: LockedSource, profile: str) -> Iterator[Fault]:
    """A fault if the Release file is older than the locked one."""
    if not before.date or release.date >= before.date:
        return
    made = day_of(release.date) if release.date else "at an unknown time"
    days = format_count(-(-(before.date - release.date) // DAY), "day")
    age = f"up to {days} older" if release.date else "of unknown age"
    yield Fault(
        place(release),
        f"requested {release.suite}, but its Release file was made {made}, {age}: "
        f"the locked one is from {day_of(before.date)}",
        "the mirror lags behind, or somebody replays an old state of it: use another mirror, "
        f"or go back with: imagebuilder lock {profile} --allow-older",
    )


def place(release: Release) -> str:
    return f"source {release.source.id}"


def render_names(names: tuple[str, str]) -> str:
    listed = [f"{key}: {name}" for key, name in zip(("Suite", "Codename"), names, strict=True)]
    return ", ".join(text for text, name in zip(listed, names, strict=True) if name) or "no name"
