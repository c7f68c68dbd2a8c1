# SPDX-License-Identifier: Apache-2.0
"""Compare a folder with an OSTree commit: names, content, modes, owners, attributes.

    commit -> dirtree and dirmeta of each folder -> checksum of each file

The name of an object is the sha256 of its content, so every object is verified before use.  A
change is found even if the repository has it too, as it does if the folder consists of hard links.
The checksum of a file covers its owner, mode, attributes and content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from imagebuilder.store.objects import (
    DamagedObjectError,
    Folder,
    Hasher,
    dirmeta_sum,
    read_commit,
    read_folder,
)
from imagebuilder.store.verify import ReadLimit, file_sum

BATCH = 128  # files that a thread takes at a time


class How(StrEnum):
    """What is wrong with a path: a sentence that begins with the path."""

    ADDED = "was added"
    MISSING = "is missing"
    KIND = "is a different kind of file"
    CHANGED = "has different content, mode, owner or attributes"
    META = "has a different mode, owner or attributes"
    UNREADABLE = "cannot be read"
    OBJECT = "could not be checked: its object in the repository is damaged"


@dataclass(frozen=True)
class DamagedPath:
    """A path below the top that differs from the commit; the top itself is "."."""

    path: str
    how: How
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.how}: {self.detail}" if self.detail else str(self.how)


def find_changes(repo: Path, commit: str, top: Path, most: int | None = None) -> list[DamagedPath]:
    """Everything below `top` that differs from `commit` of the repository `repo`, sorted by path.

    Reads every byte, with a thread for each processor, but no more than `most`: files beyond that
    differ.  Does not compare times.
    """
    try:
        tree, meta = read_commit(repo, commit)
    except DamagedObjectError as error:
        return [DamagedPath(".", How.OBJECT, told(error))]
    changes: list[DamagedPath] = []
    limit = None if most is None else ReadLimit(most)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = []
        for batch in batches(walk(repo, top, tree, meta, changes)):
            found.append(pool.submit(check_files, top, batch, limit))
        for result in found:
            changes += result.result()
    return sorted(changes, key=lambda change: change.path)


Wanted = tuple[str, str]  # the path of a regular file or link below the top, and its checksum


def batches(wanted: Iterator[Wanted]) -> Iterator[list[Wanted]]:
    """Group the items in lists, so that threads rarely wait for each other."""
    batch: list[Wanted] = []
    for each in wanted:
        batch.append(each)
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def walk(
    repo: Path, top: Path, tree: str, meta: str, changes: list[DamagedPath]
) -> Iterator[Wanted]:
    """The files that both sides have; adds other differences to `changes`."""
    todo = [("", tree, meta)]
    while todo:
        path, tree, meta = todo.pop()
        here = f"{top}/{path}"
        try:
            wanted = read_folder(repo, tree)
        except DamagedObjectError as error:
            changes.append(DamagedPath(path or ".", How.OBJECT, told(error)))
            continue
        try:
            if dirmeta_sum(here) != meta:
                changes.append(DamagedPath(path or ".", How.META))
            there = {entry.name: entry for entry in os.scandir(here)}
        except OSError as error:
            changes.append(unreadable(path or ".", error))
            continue
        changes += differing_names(path, wanted, there)
        for name, child in wanted.folders.items():
            if name in there and there[name].is_dir(follow_symlinks=False):
                todo.append((below(path, name), *child))
        for name, checksum in wanted.files.items():
            entry = there.get(name)
            if entry and (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                yield below(path, name), checksum


def differing_names(
    path: str, wanted: Folder, there: dict[str, os.DirEntry[str]]
) -> Iterator[DamagedPath]:
    """Names in one folder that only one side has, or that are folders on one side only."""
    for name in sorted({*wanted.files, *wanted.folders} - there.keys()):
        yield DamagedPath(below(path, name), How.MISSING)
    for name, entry in there.items():
        where, is_folder = below(path, name), entry.is_dir(follow_symlinks=False)
        if name not in wanted.files and name not in wanted.folders:
            yield DamagedPath(where, How.ADDED)
        elif is_folder != (name in wanted.folders) or not (
            is_folder or entry.is_file(follow_symlinks=False) or entry.is_symlink()
        ):
            yield DamagedPath(where, How.KIND)


def check_files(top: Path, wanted: Sequence[Wanted], limit: ReadLimit | None) -> list[DamagedPath]:
    """Those of `wanted` that differ."""
    changes, hasher = [], Hasher()
    for path, checksum in wanted:
        try:
            if file_sum(f"{top}/{path}", hasher, limit) != checksum:
                changes.append(DamagedPath(path, How.CHANGED))
        except OSError as error:
            changes.append(unreadable(path, error))
    return changes


def below(path: str, name: str) -> str:
    """A name in the folder `path`, which is "" for the top.  Much faster than pathlib."""
    return f"{path}/{name}" if path else name


def told(error: DamagedObjectError) -> str:
    return f"{error.faults[0].where} {error.faults[0].what}"


def unreadable(path: str, error: OSError) -> DamagedPath:
    return DamagedPath(path, How.UNREADABLE, error.strerror or str(error))
