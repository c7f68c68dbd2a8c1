# SPDX-License-Identifier: Apache-2.0
"""What was read of the packages of the pool, kept beside each below a digest of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from imagebuilder.digest import digest_of_bytes
from imagebuilder.files import Content, write_files
from imagebuilder.lock.deb import Names, parse_names, read_control, read_names
from imagebuilder.lock.pool import deb_path
from imagebuilder.lock.types import LockedPackage

CONTROL, NAMES = ".control", ".names"


def control(debs: Path, package: LockedPackage) -> str:
    """The control record of a package of the pool.  Raises WorkError when it is not there."""
    deb = deb_path(debs, package.sha256)
    if (known := find_kept(deb.with_suffix(CONTROL))) is not None:
        return known
    record, _ = read_control(deb)
    write_files([kept(deb, CONTROL, record)])
    return record


def names_of(debs: Path, packages: Sequence[LockedPackage], *, whole: bool = False) -> list[Names]:
    """The names in each package, with `whole` also those that only its files have.

    Raises WorkError for a package that is not in the pool.
    """
    paths = [deb_path(debs, package.sha256) for package in packages]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(partial(find_or_read, whole=whole), paths))
    write_files(content for _, new in found for content in new)
    return [names for names, _ in found]


def find_or_read(deb: Path, *, whole: bool) -> tuple[Names, list[Content]]:
    """The names in a package, and what of them is not kept yet."""
    names, new = find_names(deb), []
    if names is None:
        record, names = read_control(deb)
        new = [kept(deb, CONTROL, record)]
    elif names.whole or not whole:
        return names, []
    if whole and not names.whole:
        names = read_names(deb, names)
    return names, [*new, kept(deb, NAMES, names.render())]


def find_names(deb: Path) -> Names | None:
    """The names of a package that were kept."""
    known = find_kept(deb.with_suffix(NAMES))
    return None if known is None else parse_names(known)


def kept(deb: Path, suffix: str, text: str) -> Content:
    """The file that keeps what was read of a package."""
    return Content(deb.with_suffix(suffix), f"{digest_of_bytes(text.encode())}\n{text}".encode())


def find_kept(path: Path) -> str | None:
    """What such a file keeps; None when it is not there, or does not match its digest."""
    try:
        digest, _, text = path.read_text(errors="replace").partition("\n")
    except OSError:
        return None
    return text if digest == digest_of_bytes(text.encode()) else None
