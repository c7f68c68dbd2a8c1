# SPDX-License-Identifier: Apache-2.0
"""Whether an archive is as new as it was when it was locked, and the recipe's own.

A signature proves who made an index, not that it is the newest: a mirror can answer with an old
state of an archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from imagebuilder.errors import Fault, WorkError
from imagebuilder.lock.types import Lock, LockedSource
from imagebuilder.recipe.types import Source
from imagebuilder.ui import format_count

DAY = 86400
# An index that never expires and is older than this is mentioned.
OLD_DAYS = 60


class Dated(Protocol):
    """The signed index of one suite of a source."""

    @property
    def source(self) -> Source: ...

    @property
    def suite(self) -> str: ...

    @property
    def date(self) -> int:
        """When it was made, in seconds since 1970; 0 if it does not say."""

    @property
    def valid_until(self) -> int:
        """When it expires, in seconds since 1970; 0 if never."""


D = TypeVar("D", bound=Dated)


def check_against_lock(
    indexes: Iterable[D],
    lock: Lock,
    *,
    allow_older: bool,
    noun: str,
    changed: Callable[[D, LockedSource], Iterable[Fault]] = lambda *_: (),
) -> None:
    """Raise WorkError for an index that is older than the locked one, unless `allow_older`.

    `noun` says what an index is; `changed` yields other faults.  A source that the recipe now takes
    from another address or snapshot is not compared.
    """
    locked = {(source.id, source.suite): source for source in lock.sources}
    faults: list[Fault] = []
    for index in indexes:
        before = locked.get((index.source.id, index.suite))
        if before and is_same_place(index.source, before):
            faults.extend(changed(index, before))
            if not allow_older:
                faults.extend(older(index, before, lock.profile, noun))
    if faults:
        raise WorkError.of(faults)


def is_same_place(source: Source, before: LockedSource) -> bool:
    """Whether the recipe still takes a source from the address and snapshot in the lock."""
    place_now = (source.mirror or source.uri, source.snapshot)
    return place_now == (before.origin or place_now[0], before.snapshot)


def older(index: Dated, before: LockedSource, profile: str, noun: str) -> Iterator[Fault]:
    """A fault if the index is older than the locked one."""
    if not before.date or index.date >= before.date:
        return
    made = day_of(index.date) if index.date else "at an unknown time"
    days = format_count(-(-(before.date - index.date) // DAY), "day")
    age = f"up to {days} older" if index.date else "of unknown age"
    yield Fault(
        f"source {index.source.id}",
        f"requested {index.suite}, but its {noun} was made {made}, {age}: "
        f"the locked one is from {day_of(before.date)}",
        "the mirror lags behind, or somebody replays an old state of it: use another mirror, "
        f"or go back with: imagebuilder lock {profile} --allow-older",
    )


def tell_places(indexes: Iterable[Dated], progress: Callable[[str], None]) -> None:
    """Report each source whose address the site file replaced, and why."""
    changed = {index.source.id: index.source for index in indexes if index.source.instead}
    for source in changed.values():
        progress(f"note: source {source.id} is not the vendor's: {source.instead}")


def tell_old(indexes: Sequence[Dated], now: int, progress: Callable[[str], None]) -> None:
    """Report old indexes that never expire: a frozen mirror has such files too."""
    suites = [index.suite for index in indexes]
    old = [
        f"{named(index, suites)} for {format_count((now - index.date) // DAY, 'day')}"
        for index in indexes
        if index.date
        and not index.valid_until
        and not index.source.snapshot
        and now - index.date > OLD_DAYS * DAY
    ]
    if old:
        progress(
            f"note: no update in {', '.join(old)}: normal for a stable suite between point "
            "releases; if the distribution has published one, use another mirror"
        )


def named(index: Dated, suites: Sequence[str]) -> str:
    """A suite, with its source if that is a vendor's or several of `suites` have its name."""
    alone = index.source.mirror and suites.count(index.suite) == 1
    return index.suite if alone else f"{index.suite} of source {index.source.id}"


def day_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
