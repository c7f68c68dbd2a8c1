# SPDX-License-Identifier: Apache-2.0
"""What a proof is about: the tree of an image, what its manifest says, and a way to run things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from imagebuilder.image.types import Image
from imagebuilder.process import Completed
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


@dataclass(frozen=True)
class Subject:
    """An image.  `kernel` is the release of the kernel that its nodes boot.

    `packages` are versions of Debian packages by name, `wheels` by environment path versions by
    normalised name.  `engines` are those that overlays describe.  `stand_ins` are sources that the
    site file has put in a vendor's stead, and why.
    """

    profile: str
    version: str
    root: Root
    kernel: str
    cmdline: tuple[str, ...]
    hardware: tuple[Hardware, ...]
    expectations: Expectations
    packages: Mapping[str, str]
    wheels: Mapping[str, Mapping[str, str]]
    ask: Ask
    engines: Engines = field(default_factory=dict)
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        """The accelerator targets of the profile's devices, each once."""
        return tuple(dict.fromkeys(h.target for h in self.hardware if h.target))


def subject_of(image: Image, root: Root, ask: Ask, engines: Engines) -> Subject:
    wheels: dict[str, dict[str, str]] = {}
    for wheel in image.wheels:
        wheels.setdefault(wheel.path, {})[wheel.name] = wheel.version
    return Subject(
        profile=image.profile,
        version=image.version,
        root=root,
        kernel=image.kernel.release,
        cmdline=image.boot.cmdline,
        hardware=image.hardware,
        expectations=image.expectations or Expectations(),
        packages={p.name: p.version for p in image.packages},
        wheels=wheels,
        ask=ask,
        engines=engines,
        stand_ins=image.replaced,
    )
