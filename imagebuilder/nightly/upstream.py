# SPDX-License-Identifier: Apache-2.0
"""The sources of a run, and what their dates say of this host's clock.

The Release files of each source are read once, for all profiles: fetched and verified without lists
of packages, in a tenth of a second if nothing changed.

No version depends on the clock: the version of an image is the date of its archive.  The expiry of
Release files, the order of boot tests and the age of a node's last sign do depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.protocol import Archives
from imagebuilder.families.registry import family_of
from imagebuilder.lock.storage import storing
from imagebuilder.lock.types import LockedSource
from imagebuilder.recipe.types import Base, Recipe, Source
from imagebuilder.ui import Ui

DAY = 86400
# Archives of a distribution in use are younger than this.
OLD_DAYS = 60
# A smaller difference between the clocks of two machines is not worth a warning.
SKEW_S = 600


@dataclass(frozen=True)
class Upstream:
    """The Release files of this run, by source and architecture; errors are kept too."""

    mirrors: Mapping[str, str]
    cache: Path
    ui: Ui
    said: dict[tuple[Source, str], tuple[LockedSource, ...] | ImagebuilderError] = field(
        default_factory=dict
    )

    def sources(self, recipe: Recipe) -> tuple[LockedSource, ...]:
        """The Release files of the sources of `recipe`.  Raises as Family.read_sources()."""
        return tuple(
            said for source in recipe.sources for said in self.said_by(source, recipe.base)
        )

    def said_by(self, source: Source, base: Base) -> tuple[LockedSource, ...]:
        key = (source, base.architecture)
        if key not in self.said:
            try:
                self.said[key] = self.fetch(source, base)
            except ImagebuilderError as error:
                self.said[key] = error
        said = self.said[key]
        if isinstance(said, ImagebuilderError):
            raise type(said).of(said.faults)
        return said

    def fetch(self, source: Source, base: Base) -> tuple[LockedSource, ...]:
        with storing(self.cache):
            archives = Archives(self.mirrors, self.cache)
            return family_of(base).read_sources(
                [source], archives, base.architecture, self.ui.detail
            )

    @property
    def newest(self) -> int:
        """The date of the newest Release file of this run, seconds since 1970; 0 for none."""
        came = [said for said in self.said.values() if not isinstance(said, ImagebuilderError)]
        return max((source.date for said in came for source in said), default=0)


def clock_warnings(now: float, *, lock: int, run: float, release: int) -> Iterator[str]:
    """What is odd about this host's time `now`; all times in seconds since 1970, 0 if unknown.

    `lock` is the newest epoch of a lock file, `run` the start of the previous nightly run, and
    `release` the date of the newest Release file.
    """
    for moment, what in (
        (run, "the previous nightly run began"),
        (max(lock, release), "the newest archive was made"),
    ):
        if moment > now + SKEW_S:
            yield (
                f"this host's clock says {show_moment(now)}, but {what} {show_moment(moment)}: "
                "the clock was set back, or was fast before; check its time synchronisation"
            )
    if release and now - release > OLD_DAYS * DAY:
        days = int(now - release) // DAY
        yield (
            f"the newest archive is {days} days old by this host's clock ({show_moment(now)}): "
            "the mirror is no longer updated, or the clock is fast"
        )


def show_moment(moment: float) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
