# SPDX-License-Identifier: Apache-2.0
"""What the layers of a profile ask a package manager for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.files import read_text


@dataclass(frozen=True)
class Request:
    """What one layer asks for; `overlay` is "" for the base.

    With `build`, it is what that build's tree has on top of the first `layers` layers (None: all),
    and the `sources` that it unpacks.  `file` is where the overlay lists its packages, by their
    names in Debian; `elsewhere` is the suite of another distribution that may use other names.
    """

    overlay: str
    packages: tuple[str, ...]
    build: str = ""
    file: Path | None = None
    elsewhere: str = ""
    sources: tuple[str, ...] = ()
    layers: int | None = None

    @property
    def name(self) -> str:
        if self.build:
            return f"build {self.build} of overlay {self.overlay}"
        return f"overlay {self.overlay}" if self.overlay else "the base"

    def place_of(self, package: str) -> str:
        """Where a package was requested: a position in the overlay's file, or the layer's name."""
        if self.file is None or not self.file.is_file():
            return self.name
        word = re.compile(rf"(?<![A-Za-z0-9.+-]){re.escape(package)}(?![A-Za-z0-9.+-])")
        for number, line in enumerate(read_text(self.file).splitlines(), 1):
            if found := word.search(line.partition("#")[0]):
                column = found.start() + 1
                return f"overlays/{self.overlay}/{self.file.name}:{number}:{column}"
        return self.name
