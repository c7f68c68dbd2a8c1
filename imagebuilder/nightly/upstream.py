# SPDX-License-Identifier: Apache-2.0
"""The sources of a night: the Release file of each is asked for once, whatever profile wants it.

It is fetched and verified as apt does it, without any list of packages: a tenth of a second where
nothing changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.lock.apt import in_use, make_apt
from imagebuilder.lock.release import Release
from imagebuilder.lock.storage import storing
from imagebuilder.lock.update import load_releases
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class Upstream:
    """What archives said tonight, by source and architecture; an error stands for all night."""

    mirrors: Mapping[str, str]
    cache: Path
    ui: Ui
    said: dict[tuple[Source, str], tuple[Release, ...] | ImagebuilderError] = field(
        default_factory=dict
    )

    def releases(self, recipe: Recipe) -> tuple[Release, ...]:
        """The Release files of every source of `recipe`.  Raises as make_apt(), load_releases()."""
        return tuple(
            release
            for source in recipe.sources
            for release in self.releases_of(source, recipe.base.architecture)
        )

    def releases_of(self, source: Source, architecture: str) -> tuple[Release, ...]:
        key = (source, architecture)
        if key not in self.said:
            try:
                self.said[key] = self.fetch(source, architecture)
            except ImagebuilderError as error:
                self.said[key] = error
        said = self.said[key]
        if isinstance(said, ImagebuilderError):
            raise type(said).of(said.faults)
        return said

    def fetch(self, source: Source, architecture: str) -> tuple[Release, ...]:
        with storing(self.cache):
            apt = make_apt(
                [source], self.mirrors, self.cache, architecture=architecture, with_packages=False
            )
            with in_use(apt):
                return load_releases(apt, self.ui.detail)

    @property
    def newest(self) -> int:
        """The date of the newest Release file that came, seconds since 1970; 0 for none."""
        came = [said for said in self.said.values() if not isinstance(said, ImagebuilderError)]
        return max((release.date for said in came for release in said), default=0)
