# SPDX-License-Identifier: Apache-2.0
"""The provenance of a root that was just built, without hashing what the previous build hashed.

state/verified/PROFILE.json     the files of the profile's last root that are as packages ship them

The store names files by content, so a path that is the same in two commits is verified once for
both.  `imagebuilder prove` reads every byte: a build does not look for disk damage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.decode import JsonFile
from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.shipped import Checksum, ShippedFile
from imagebuilder.files import write_file
from imagebuilder.image.types import Image
from imagebuilder.proof.provenance.history import differences
from imagebuilder.proof.provenance.read import Entries, read_provenance
from imagebuilder.proof.provenance.types import Provenance
from imagebuilder.root import Root
from imagebuilder.store.objects import read_commit
from imagebuilder.store.repository import Store


@dataclass(frozen=True)
class Verified:
    """The files of the root `commit` with the content that their package recorded."""

    commit: str
    intact: Mapping[str, Checksum]


FILE = JsonFile(Verified, schema=1, hint="remove it: the next build hashes all files")


def verified_file(state: Path, profile: str) -> Path:
    return state / "verified" / f"{profile}.json"


def read_built_provenance(
    state: Path,
    store: Store,
    image: Image,
    root: Root,
    shipped: Mapping[str, ShippedFile],
    entries: Entries,
) -> Provenance:
    """Like read_provenance(), for a root that is identical to the image's commit.

    Saves what it verified for the next build of the profile, if it can be written.
    """
    verified = find_verified(state, store, image)
    found = read_provenance(store, image, root, shipped, entries, verified=verified)
    target = verified_file(state, image.profile)
    with suppress(OSError):
        write_file(target, FILE.render(Verified(image.root.commit, found.intact)).encode())
    return found


def find_verified(state: Path, store: Store, image: Image) -> Mapping[str, Checksum]:
    """The intact files of the profile's last root that the image has too; none if that root is
    unknown or no longer in the store.
    """
    path = verified_file(state, image.profile)
    if not path.exists():
        return {}
    try:
        last = FILE.load(path)
        old, new = (read_commit(store.path, one)[0] for one in (last.commit, image.root.commit))
        changed = {name for _, name in differences(store.path, old, new)}
    except ImagebuilderError:
        return {}
    return {name: checksum for name, checksum in last.intact.items() if name not in changed}


def drop_verified(state: Path, profiles: Collection[str]) -> None:
    """Remove the files of other profiles, and what a killed writer left."""
    needed = {verified_file(state, profile).name for profile in profiles}
    for path in (state / "verified").glob("*"):
        if path.name not in needed:
            path.unlink()
