# SPDX-License-Identifier: Apache-2.0
"""What the proof of a profile's last build found out of files that are the same in this build.

state/verified/PROFILE.json     files of the last root: those that are as packages ship them, those
                                that are not, and what was read of modules and of code for GPUs

The store names files by content, so what is known of a path holds for every commit that has the
same file there.  `imagebuilder prove` reads every byte: a build does not look for disk damage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

import zstandard

from imagebuilder import elf, limited, offload
from imagebuilder.decode import JsonFile
from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.shipped import Checksum, ShippedFile
from imagebuilder.files import write_file
from imagebuilder.folders import drop_others
from imagebuilder.image.types import Image
from imagebuilder.proof import facts
from imagebuilder.proof.code import cuda, hip, level_zero, prove
from imagebuilder.proof.facts import FileFacts, Known
from imagebuilder.proof.provenance.read import differences, read_provenance
from imagebuilder.proof.reading import code, modules
from imagebuilder.proof.reading.code import CodeFile
from imagebuilder.proof.reading.modules import Module, ModuleReader
from imagebuilder.proof.reading.provenance import Compared, Entries, Provenance
from imagebuilder.proof.subject import RootReader
from imagebuilder.root import Root
from imagebuilder.store.objects import read_commit
from imagebuilder.store.repository import Store

V = TypeVar("V")


@dataclass(frozen=True)
class Verified:
    """What is known of the root `commit`: the files with the content that their package recorded,
    those with another, each with that record, and what the program `read_by` read of others.
    """

    commit: str = ""
    intact: Mapping[str, Checksum] = field(default_factory=dict)
    altered: Mapping[str, Checksum] = field(default_factory=dict)
    read_by: str = ""
    modules: Known[Module] = field(default_factory=dict)
    code: Known[CodeFile] = field(default_factory=dict)


# What makes facts of the content of a file.
READERS = (elf, limited, offload, facts, modules, code, prove, hip, cuda, level_zero)
FILE = JsonFile(Verified, schema=3, hint="remove it: the next build reads all files")


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
    def reading(self) -> RootReader:
        return RootReader(
            ModuleReader(self.root, lambda: self.known.modules),
            FileFacts(self.root, lambda: self.known.code),
        )

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
            self.image.root.commit,
            compared.intact,
            compared.altered,
            program(),
            self.reading.modules.kept(lambda module: not module.problem),
            self.reading.code.kept(lambda file: not any(each.problem for each in file.objects)),
        )
        with suppress(OSError):
            write_file(verified_file(self.state, self.image.profile), FILE.render(found).encode())


@cache
def program() -> str:
    """Identifies the version of the program that reads facts."""
    sources = (Path(module.__file__ or "").read_bytes() for module in READERS)
    return hashlib.sha256(b"\0".join((zstandard.__version__.encode(), *sources))).hexdigest()


def verified_file(state: Path, profile: str) -> Path:
    return state / "verified" / f"{profile}.json"


def find_verified(state: Path, store: Store, image: Image) -> Verified:
    """What is known of files of the last root that the image has too; else nothing."""
    path = verified_file(state, image.profile)
    if not path.exists():
        return Verified()
    try:
        last = FILE.load(path)
        old, new = (read_commit(store.path, one)[0] for one in (last.commit, image.root.commit))
        changed = {name for _, name in differences(store.path, old, new)}
    except ImagebuilderError:
        return Verified()
    intact, altered = unchanged(last.intact, changed), unchanged(last.altered, changed)
    if last.read_by != program():
        return Verified(image.root.commit, intact, altered)
    read = {asked: unchanged(facts, changed) for asked, facts in last.modules.items()}
    code = {asked: unchanged(facts, changed) for asked, facts in last.code.items()}
    return Verified(image.root.commit, intact, altered, program(), read, code)


def unchanged(known: Mapping[str, V], changed: Collection[str]) -> Mapping[str, V]:
    return {path: value for path, value in known.items() if path not in changed}


def drop_verified(state: Path, profiles: Collection[str]) -> None:
    """Remove the files of other profiles."""
    drop_others(state / "verified", {verified_file(state, profile) for profile in profiles})
