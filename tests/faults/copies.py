# SPDX-License-Identifier: Apache-2.0
"""One copy of a good release for many faults: what a fault changed is put back after it.

A copy is hard links, so a file is as it was if it is the same inode.  Reading the folders of a copy
takes a twentieth of making and removing 30,000 links for each fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.tree import ReleaseName, Tree
from tests.faults.site import Site, copy_site


@dataclass
class Copies:
    """The copies in a folder, each with the snapshot that it is restored to."""

    place: Path
    snapshots: dict[Path, Snapshot] = field(default_factory=dict)

    @contextmanager
    def of(self, good: Tree, release: ReleaseName, *, with_repo: bool) -> Iterator[Site]:
        """A copy of a release of `good` to change at will until the end of the block."""
        top = self.place / f"copy-{release.profile}{'-with-repo' if with_repo else ''}"
        if top in self.snapshots:
            site = Site(Tree(top), release)
        else:
            site = copy_site(good, release, top, with_repo=with_repo)
            self.snapshots[top] = Snapshot.of(top, self.place / f"{top.name}.links")
        snapshot = self.snapshots.pop(top)
        try:
            yield site
            snapshot.restore(top)
            self.snapshots[top] = snapshot
        finally:
            if top not in self.snapshots:
                shutil.rmtree(top)
                shutil.rmtree(snapshot.links)


@dataclass(frozen=True)
class Attributes:
    """What a folder has beside its entries."""

    mode: int
    owner: tuple[int, int]
    extended: tuple[tuple[str, bytes], ...]
    modified: int  # nanoseconds

    @classmethod
    def of(cls, folder: Path) -> Attributes:
        """Those of a folder."""
        found = folder.stat()
        names = sorted(os.listxattr(folder))
        return cls(
            found.st_mode & 0o7777,
            (found.st_uid, found.st_gid),
            tuple((name, os.getxattr(folder, name)) for name in names),
            found.st_mtime_ns,
        )

    def restore(self, folder: Path) -> None:
        """Give them to a folder, where they are others."""
        if (now := Attributes.of(folder)) == self:
            return
        os.chown(folder, *self.owner)
        folder.chmod(self.mode)
        for name in {name for name, _ in now.extended} - {name for name, _ in self.extended}:
            os.removexattr(folder, name)
        for name, value in self.extended:
            os.setxattr(folder, name, value)
        os.utime(folder, ns=(self.modified, self.modified))


Entries = dict[str, int | None]


@dataclass(frozen=True)
class Snapshot:
    """Every folder of a tree: its attributes, its folders (None) and the inodes of the rest.

    `links` is a second link to each file, which no fault touches.
    """

    links: Path
    folders: dict[Path, tuple[Attributes, Entries]]

    @classmethod
    def of(cls, top: Path, links: Path) -> Snapshot:
        """That of a tree as it is now, with its links in a new folder."""
        run(["cp", "-al", top, links])
        folders = {}
        waiting = [Path()]
        while waiting:
            name = waiting.pop()
            entries = entries_of(top / name)
            folders[name] = Attributes.of(top / name), entries
            waiting += [name / one for one, inode in entries.items() if inode is None]
        return cls(links, folders)

    def restore(self, top: Path) -> None:
        """Put everything in the tree back that is another file than it was."""
        for name, (_, entries) in self.folders.items():  # a folder comes before what is in it
            restore_entries(top / name, self.links / name, entries)
        for name, (attributes, _) in reversed(self.folders.items()):
            attributes.restore(top / name)


def restore_entries(folder: Path, links: Path, before: Entries) -> None:
    """Put the entries of one folder back; a folder that is missing comes back empty."""
    now = entries_of(folder)
    for name in now:
        if name not in before or now[name] != before[name]:
            remove(folder / name)
    for name, inode in before.items():
        if name in now and now[name] == inode:
            continue
        if inode is None:
            (folder / name).mkdir()
        else:
            os.link(links / name, folder / name, follow_symlinks=False)


def entries_of(folder: Path) -> Entries:
    """The inode of each entry of a folder; None for a folder."""
    with os.scandir(folder) as entries:
        return {
            one.name: None if one.is_dir(follow_symlinks=False) else one.inode() for one in entries
        }


def remove(path: Path) -> None:
    """Remove an entry, whatever it is."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
