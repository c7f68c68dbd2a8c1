# SPDX-License-Identifier: Apache-2.0
"""The objects that commits need, the files of damaged ones, and their repair."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from imagebuilder.files import keep_file, point_link
from imagebuilder.store.objects import DamagedObjectError, Hasher, read_commit, read_folder
from imagebuilder.store.plain import COMMIT, DIRMETA, DIRTREE, FILE
from imagebuilder.store.upper import remove
from imagebuilder.store.verify import Name, find_fault, place_of


def reachable(repo: Path, commits: Iterable[str]) -> set[Name]:
    """Every object that `commits` need, as far as existing objects show."""
    found: set[Name] = {(commit, COMMIT) for commit in commits}
    todo: list[str] = []

    def enter(tree: str, meta: str) -> None:
        found.add((meta, DIRMETA))
        if (tree, DIRTREE) not in found:
            found.add((tree, DIRTREE))
            todo.append(tree)

    for commit, _ in list(found):
        try:
            enter(*read_commit(repo, commit))
        except DamagedObjectError:
            continue
    while todo:
        try:
            folder = read_folder(repo, todo.pop())
        except DamagedObjectError:
            continue
        found.update((checksum, FILE) for checksum in folder.files.values())
        for tree, meta in folder.folders.values():
            enter(tree, meta)
    return found


class Finder:
    """Finds the paths of objects in commits; reads each folder once."""

    def __init__(self, repo: Path, wanted: Mapping[Name, str]) -> None:
        self.repo, self.wanted = repo, wanted
        self.known: dict[str, tuple[tuple[str, Name], ...]] = {}

    def find(self, commit: str) -> Iterator[tuple[str, Name]]:
        """Paths below the top of a commit; "" is the commit itself."""
        if (commit, COMMIT) in self.wanted:
            yield "", (commit, COMMIT)
            return
        try:
            tree, meta = read_commit(self.repo, commit)
        except DamagedObjectError:
            return
        yield from self._of_folder("/", tree, meta)

    def _of_folder(self, path: str, tree: str, meta: str) -> Iterator[tuple[str, Name]]:
        for name in ((tree, DIRTREE), (meta, DIRMETA)):
            if name in self.wanted:
                yield path, name
        if tree not in self.known:
            self.known[tree] = tuple(self._inside(tree))
        top = "" if path == "/" else path
        for inside, name in self.known[tree]:
            yield f"{top}{inside}", name

    def _inside(self, tree: str) -> Iterator[tuple[str, Name]]:
        try:
            folder = read_folder(self.repo, tree)
        except DamagedObjectError:
            return
        for file, checksum in folder.files.items():
            if (checksum, FILE) in self.wanted:
                yield f"/{file}", (checksum, FILE)
        for child, (child_tree, child_meta) in folder.folders.items():
            yield from self._of_folder(f"/{child}", child_tree, child_meta)


def take_from(donor: Path, repo: Path, name: Name) -> bool:
    """Replace a damaged object with a copy from another repository, if it is valid there.

    False for a hard link to the same file, which is damaged too.
    """
    source, place = place_of(donor, name), place_of(repo, name)
    if find_fault(donor, name, Hasher()):
        return False
    if place.parent.is_symlink() or not place.parent.is_dir():
        remove(place.parent)
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        remove(place)
    found = source.lstat()
    if source.is_symlink():
        point_link(place, os.fspath(source.readlink()))
        os.lchown(place, found.st_uid, found.st_gid)
    else:
        staged = place.with_name(f"repaired-{name[0]}")
        shutil.copyfile(source, staged)
        os.chown(staged, found.st_uid, found.st_gid)
        shutil.copystat(source, staged)
        keep_file(staged, place)
    return not find_fault(repo, name, Hasher())


def drop_objects(repo: Path, names: Iterable[Name]) -> None:
    """Remove damaged objects, which would keep the same content from being stored again."""
    for name in names:
        remove(place_of(repo, name))
