# SPDX-License-Identifier: Apache-2.0
"""Verify objects of a repository, with a thread for each processor."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from imagebuilder.store.objects import (
    DamagedObjectError,
    Hasher,
    is_folder_meta,
    link_sum,
    object_path,
    read_object,
)
from imagebuilder.store.plain import DIRMETA, FILE, KINDS, NO_FILE, is_plain

Name = tuple[str, str]  # checksum and kind
BATCH = 128  # objects that a thread takes at a time
CHUNK = 1 << 18
# Never waits for a named pipe or a device, never follows a link.
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OTHER, MISSING = "does not match its digest", "is missing"
NO_FOLDER = "describes no folder"


class ReadLimit:
    """How many bytes of files may be read; any thread may ask.

    A damaged file may have any size: a sparse one of a terabyte takes no place on the disk, and an
    hour to read.
    """

    def __init__(self, most: int) -> None:
        self.left = most
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether a file of that size may be read too."""
        with self._lock:
            fits = size <= self.left
            self.left -= size if fits else 0
        return fits


def place_of(repo: Path, name: Name) -> Path:
    return repo / "objects" / object_path(*name)


def name_of(path: str) -> Name:
    checksum, _, kind = path.partition(".")
    return checksum.replace("/", ""), kind


def objects_in(repo: Path) -> list[Name]:
    """What a repository itself has, not its parent."""
    found: list[Name] = []
    for folder in list(os.scandir(repo / "objects")):
        if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
            continue
        for entry in list(os.scandir(folder.path)):
            rest, _, kind = entry.name.partition(".")
            if kind in KINDS:
                found.append((folder.name + rest, kind))
    return sorted(found)


def find_damaged(repo: Path, names: Iterable[Name], most: int | None = None) -> dict[Name, str]:
    """The damaged or missing objects, and how; reads every byte, of files at most `most`.

    Each batch is verified as soon as `names` has given it.
    """
    names = iter(names)
    limit = None if most is None else ReadLimit(most)
    batches = iter(lambda: tuple(islice(names, BATCH)), ())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda batch: check_objects(repo, batch, limit), batches)
        return {name: how for part in found for name, how in part.items()}


def check_objects(
    repo: Path, names: Iterable[Name], limit: ReadLimit | None = None
) -> dict[Name, str]:
    hasher, wrong = Hasher(), {}
    for name in names:
        if how := find_fault(repo, name, hasher, limit):
            wrong[name] = how
    return wrong


def find_fault(repo: Path, name: Name, hasher: Hasher, limit: ReadLimit | None = None) -> str:
    """What is wrong with an object; "" if it is valid."""
    how = compare(repo, name, hasher, limit)
    return NO_FILE if how and not is_plain(place_of(repo, name)) else how


def compare(repo: Path, name: Name, hasher: Hasher, limit: ReadLimit | None) -> str:
    """How an object differs from its name; "" if it does not."""
    checksum, kind = name
    try:
        if kind == FILE:
            same = file_sum(os.fspath(place_of(repo, name)), hasher, limit) == checksum
            return "" if same else OTHER
        data = read_object(repo, checksum, kind)
        return NO_FOLDER if kind == DIRMETA and not is_folder_meta(data) else ""
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except DamagedObjectError:
        return OTHER if place_of(repo, name).exists() else MISSING
    return ""


def file_sum(path: str, hasher: Hasher, limit: ReadLimit | None = None) -> str:
    """The checksum of a regular file or a link, as OSTree computes it; "" for what is neither, or
    larger than the limit.  Raises OSError.
    """
    try:
        descriptor = os.open(path, OPEN)
    except OSError:
        if not Path(path).is_symlink():
            raise
        return link_sum(path)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (limit and not limit.take(found.st_size)):
            return ""
        digest = hasher.begin(descriptor, found)
        while chunk := os.read(descriptor, CHUNK):
            digest.update(chunk)
        return digest.hexdigest()
    finally:
        os.close(descriptor)
