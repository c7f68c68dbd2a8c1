# SPDX-License-Identifier: Apache-2.0
"""The control records of packages in the pool, and the names in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from imagebuilder.families.apt.deb import read_control, read_names
from imagebuilder.files import Content, write_files
from imagebuilder.lock.kept import CONTROL, NAMES, Names, find_kept, kept, parse_names
from imagebuilder.lock.pool import package_path
from imagebuilder.lock.types import LockedPackage


def control(debs: Path, package: LockedPackage) -> str:
    """The control record of a package in the pool.  Raises WorkError if it is missing."""
    deb = package_path(debs, package)
    if (known := find_kept(deb.with_suffix(CONTROL))) is not None:
        return known
    record, _ = read_control(deb)
    write_files([kept(deb, CONTROL, record)])
    return record


def names_of(debs: Path, packages: Sequence[LockedPackage], *, whole: bool = False) -> list[Names]:
    """The names in each package; with `whole` also those that only its files have.

    Raises WorkError for a package that is not in the pool.
    """
    paths = [package_path(debs, package) for package in packages]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(partial(find_or_read, whole=whole), paths))
    write_files(content for _, new in found for content in new)
    return [names for names, _ in found]


def find_or_read(deb: Path, *, whole: bool) -> tuple[Names, list[Content]]:
    """The names in a package, and the cache files that are still to be written."""
    known = find_kept(deb.with_suffix(NAMES))
    names, new = None if known is None else parse_names(known), []
    if names is None:
        record, names = read_control(deb)
        new = [kept(deb, CONTROL, record)]
    elif names.whole or not whole:
        return names, []
    if whole and not names.whole:
        names = read_names(deb, names)
    return names, [*new, kept(deb, NAMES, names.render())]
