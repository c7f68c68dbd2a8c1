# SPDX-License-Identifier: Apache-2.0
"""The sources of a night: what each says of itself is asked for once, whatever profile wants it.

It is fetched and verified without any list of packages: a tenth of a second where
nothing changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.protocol import Archives
from imagebuilder.families.registry import family_of
from imagebuilder.lock.storage import storing
from imagebuilder.lock.types import LockedSource
from imagebuilder.recipe.types import Base, Recipe, Source
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class Upstream:
    """What archives said tonight, by source and architecture; an error stands for all night."""

    mirrors: Mapping[str, str]
    cache: Path
    ui: Ui
    said: dict[tuple[Source, str], tuple[LockedSource, ...] | ImagebuilderError] = field(
        default_factory=dict
    )

    def sources(self, recipe: Recipe) -> tuple[LockedSource, ...]:
        """What every source of `recipe` says of itself.  Raises as Family.read_sources()."""
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
        """The date of the newest Release file that came, seconds since 1970; 0 for none."""
        came = [said for said in self.said.values() if not isinstance(said, ImagebuilderError)]
        return max((source.date for said in came for source in said), default=0)
