# SPDX-License-Identifier: Apache-2.0
"""What a proof is about: the tree of an image, what its manifest says, and a way to run things."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from imagebuilder.families.protocol import Family
from imagebuilder.families.registry import family_of_distribution
from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.types import Image
from imagebuilder.process import Completed
from imagebuilder.proof.provenance.types import Provenance
from imagebuilder.recipe.engines import Engines
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root


class Ask(Protocol):
    """Runs a command in the image, in a sandbox without network and without devices.

    Raises nothing for an exit status other than 0: 124 is what a command gets that ran longer than
    `seconds`.
    """

    def __call__(self, argv: Sequence[str], *, seconds: int = 60) -> Completed: ...


def untraced() -> None:
    """The provenance of a root without layers."""


@dataclass(frozen=True)
class Subject:
    """An image and its tree.  `engines` are those that overlays describe.

    `trace` gives the provenance of the root, None where the layers of the image are not at hand;
    it may take its time, while other questions are asked.
    """

    image: Image
    root: Root
    ask: Ask
    engines: Engines = field(default_factory=dict)
    trace: Callable[[], Provenance | None] = untraced

    @cached_property
    def family(self) -> Family:
        return family_of_distribution(self.image.distribution)

    @property
    def kernel(self) -> str:
        """The release of the kernel that its nodes boot."""
        return self.image.kernel.release

    @property
    def cmdline(self) -> tuple[str, ...]:
        return self.image.boot.cmdline

    @property
    def hardware(self) -> tuple[Hardware, ...]:
        return self.image.hardware

    @property
    def provenance(self) -> Provenance | None:
        """Where the files of the root are from.  Raises InputError, WorkError."""
        return self.trace()

    @property
    def targets(self) -> tuple[str, ...]:
        """The accelerator targets of the profile's devices, each once."""
        return tuple(dict.fromkeys(h.target for h in self.hardware if h.target))

    @property
    def expectations(self) -> Expectations:
        return self.image.expectations or Expectations()

    @cached_property
    def packages(self) -> Mapping[str, str]:
        """Versions by name, which `family` knows."""
        return {package.name: package.version for package in self.image.packages}

    @cached_property
    def wheels(self) -> Mapping[str, Mapping[str, str]]:
        """By environment path versions by normalised name."""
        found: dict[str, dict[str, str]] = {}
        for wheel in self.image.wheels:
            found.setdefault(wheel.path, {})[wheel.name] = wheel.version
        return found

    @property
    def enabled(self) -> tuple[str, ...]:
        """The units that overlays enable."""
        return tuple(unit for unit, verb in self.image.units.items() if verb == "enable")

    @cached_property
    def shipped(self) -> Mapping[str, ShippedFile]:
        """What the root's packages ship, by path."""
        return self.family.shipped_files(self.root)
