# SPDX-License-Identifier: Apache-2.0
"""What a proof is about: the tree of an image, its manifest, and a way to run its programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Protocol, TypeVar, cast

from imagebuilder.families.protocol import Family
from imagebuilder.families.registry import family_of_distribution
from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.types import Image
from imagebuilder.process import Completed
from imagebuilder.proof.facts import FileFacts, Once
from imagebuilder.proof.reading.accounts import Accounts, read_accounts
from imagebuilder.proof.reading.code import CodeFile
from imagebuilder.proof.reading.config import KernelWord, kernel_words
from imagebuilder.proof.reading.modules import Kernel, ModuleReader
from imagebuilder.proof.reading.provenance import Entries, Provenance, walk_root
from imagebuilder.proof.reading.systemd import Startup, read_startup
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.engines import Engines
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root

T = TypeVar("T")


@dataclass(frozen=True)
class RootReader:
    """What reads the files that take long, with what it knows of them."""

    modules: ModuleReader
    code: FileFacts[CodeFile]


class RunInImage(Protocol):
    """Runs a command in the image, in a sandbox without network and devices.

    Does not raise for an exit status other than 0; after more than `seconds`, it is TIMED_OUT.
    """

    def __call__(self, argv: Sequence[str], *, seconds: int = 60) -> Completed: ...


def no_provenance() -> None:
    """For a root whose layers are not available."""


@dataclass(frozen=True)
class Subject:
    """An image and its tree.  `engines` are those that overlays describe.

    `trace` returns the provenance of the root, None if the layers of the image are not available;
    it may take long, while other questions are answered.  `reading` may know facts about the root.
    """

    image: Image
    root: Root
    run: RunInImage
    engines: Engines = field(default_factory=dict)
    trace: Callable[[], Provenance | None] = no_provenance
    reading: RootReader | None = None
    made: Once[Callable[[Subject], object], object] = field(default_factory=Once, compare=False)

    def once(self, read: Callable[[Subject], T]) -> T:
        """What `read` makes of the root and its programs, read by the first question that asks."""
        return cast("T", self.made.get(read, lambda: read(self)))

    @cached_property
    def family(self) -> Family:
        return family_of_distribution(self.image.distribution)

    @property
    def kernel(self) -> str:
        """The release of the kernel that nodes boot."""
        return self.image.kernel.release

    @property
    def cmdline(self) -> tuple[str, ...]:
        return self.image.boot.cmdline

    @cached_property
    def words(self) -> tuple[KernelWord, ...]:
        """The words of the kernel's command line."""
        return tuple(kernel_words(self.cmdline))

    @property
    def hardware(self) -> tuple[Hardware, ...]:
        return self.image.hardware

    @cached_property
    def chips(self) -> tuple[Chip, ...]:
        """The devices of the profile that hardware/*.yaml describes."""
        return tuple(chip for device in self.hardware if (chip := chip_of(device)))

    @property
    def provenance(self) -> Provenance | None:
        """The origin of the root's files.  Raises InputError, WorkError."""
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
        """Versions by name."""
        return {package.name: package.version for package in self.image.packages}

    @cached_property
    def wheels(self) -> Mapping[str, Mapping[str, str]]:
        """Versions by path of the environment and normalised name."""
        found: dict[str, dict[str, str]] = {}
        for wheel in self.image.wheels:
            found.setdefault(wheel.path, {})[wheel.name] = wheel.version
        return found

    @property
    def enabled(self) -> tuple[str, ...]:
        """The units that overlays enable."""
        return tuple(unit for unit, verb in self.image.units.items() if verb == "enable")

    @cached_property
    def modules(self) -> ModuleReader:
        """Reads the kernel's modules, each once for all questions."""
        return self.reading.modules if self.reading else ModuleReader(self.root)

    @cached_property
    def drivers(self) -> Kernel:
        """What the kernel that nodes boot has built in, and as modules."""
        return Kernel(self.modules, self.kernel)

    @cached_property
    def startup(self) -> Startup:
        """What systemd starts at boot."""
        return self.once(read_startup)

    @cached_property
    def accounts(self) -> Accounts:
        return read_accounts(self.root)

    @cached_property
    def code(self) -> FileFacts[CodeFile]:
        """The code for GPUs in files, by target."""
        return self.reading.code if self.reading else FileFacts(self.root)

    @cached_property
    def entries(self) -> Entries:
        """Every path of the root with its lstat(2); folders come before what they hold."""
        return dict(walk_root(self.root))

    @cached_property
    def shipped(self) -> Mapping[str, ShippedFile]:
        """What the root's packages ship, by path."""
        return self.family.shipped_files(self.root)


def once(read: Callable[[Subject], T]) -> Callable[[Subject], T]:
    """A reader that is run once for all questions (Subject.once())."""

    @wraps(read)
    def shared(subject: Subject) -> T:
        return subject.once(read)

    return shared
