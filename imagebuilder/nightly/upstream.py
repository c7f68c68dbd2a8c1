# SPDX-License-Identifier: Apache-2.0
"""The sources of a run: the Release files of each are read once, for all profiles.

They are fetched and verified without lists of packages, in a tenth of a second if nothing changed.
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
