# SPDX-License-Identifier: Apache-2.0
"""What the proof of a profile's last build found out of files that are the same in this build.

state/verified/PROFILE.json     files of the last root: those that are as packages ship them, those
                                that are not, and the modules that were read

The store names files by content, so what is known of a path holds for every commit that has the
same file there.  `imagebuilder prove` reads every byte: a build does not look for disk damage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from imagebuilder.decode import JsonFile
from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.shipped import Checksum, ShippedFile
from imagebuilder.files import write_file
from imagebuilder.image.types import Image
from imagebuilder.proof.kernel.modules import Module, ModuleReader
from imagebuilder.proof.provenance.history import differences
from imagebuilder.proof.provenance.read import Entries, read_provenance
from imagebuilder.proof.provenance.types import Compared, Provenance
from imagebuilder.root import Root
from imagebuilder.store.objects import read_commit
from imagebuilder.store.repository import Store

V = TypeVar("V")


@dataclass(frozen=True)
class Verified:
    """What is known of the root `commit`: the files with the content that their package recorded,
    those with another, each with that record, and modules.
    """

    commit: str = ""
    intact: Mapping[str, Checksum] = field(default_factory=dict)
    altered: Mapping[str, Checksum] = field(default_factory=dict)
    modules: Mapping[str, Module] = field(default_factory=dict)


# Another number also when read_module() reads something else.
FILE = JsonFile(Verified, schema=2, hint="remove it: the next build reads all files")


@dataclass(frozen=True)
class Memory:
    """For the proof of a `root` that is identical to the commit of its `image`."""

    state: Path
    store: Store
    image: Image
    root: Root
    traced: Future[Provenance] = field(default_factory=Future)

    @cached_property
    def known(self) -> Verified:
        return find_verified(self.state, self.store, self.image)

    @cached_property
    def reader(self) -> ModuleReader:
        return ModuleReader(self.root, lambda: self.known.modules)

    def trace(self, shipped: Mapping[str, ShippedFile], entries: Entries) -> Provenance:
        """Like read_provenance(), without hashing what is known.  Called once."""
        known = Compared(self.known.intact, self.known.altered)
        found = read_provenance(self.store, self.image, self.root, shipped, entries, known=known)
        self.traced.set_result(found)
        return found

    def keep(self) -> None:
        """Save what this proof found out for the profile's next build, if it can be written."""
        compared = self.traced.result().compared
        found = Verified(
            self.image.root.commit, compared.intact, compared.altered, self.reader.sound()
        )
        with suppress(OSError):
            write_file(verified_file(self.state, self.image.profile), FILE.render(found).encode())


def verified_file(state: Path, profile: str) -> Path:
    return state / "verified" / f"{profile}.json"


def find_verified(state: Path, store: Store, image: Image) -> Verified:
    """What is known of files of the profile's last root that the image has too; nothing if that
    root is unknown or no longer in the store.
    """
    path = verified_file(state, image.profile)
    if not path.exists():
        return Verified()
    try:
        last = FILE.load(path)
        old, new = (read_commit(store.path, one)[0] for one in (last.commit, image.root.commit))
        changed = {name for _, name in differences(store.path, old, new)}
    except ImagebuilderError:
        return Verified()
    return Verified(
        image.root.commit,
        unchanged(last.intact, changed),
        unchanged(last.altered, changed),
        unchanged(last.modules, changed),
    )


def unchanged(known: Mapping[str, V], changed: Collection[str]) -> Mapping[str, V]:
    return {path: value for path, value in known.items() if path not in changed}


def drop_verified(state: Path, profiles: Collection[str]) -> None:
    """Remove the files of other profiles, and what a killed writer left."""
    needed = {verified_file(state, profile).name for profile in profiles}
    for path in (state / "verified").glob("*"):
        if path.name not in needed:
            path.unlink()
