# SPDX-License-Identifier: Apache-2.0
"""Unverified reports of what machines run: TREE/seen/strangers.json.

Such a report may keep a release and never frees one.  Their number is bounded: each address has a
few records, and a full list drops one of the address with the most.  The newest record of each
existing release is never dropped, so no number of reports can hide that a release is in use.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from imagebuilder.files import move_away, write_file
from imagebuilder.nodes.evidence.seen import (
    SEEN,
    DamagedRecordError,
    Seen,
    merge,
    parse_record,
    parse_seen,
    read_bounded,
    read_seen,
)
from imagebuilder.tree import RECORD, ReleaseName, Tree

MOST = 256  # records, plus one for each existing release
MOST_OF_ADDRESS = 16
MOST_BYTES = 4 * 1024**2
DAMAGED = ".damaged"
FOLDED = 500  # old records moved into the list at once
Key = tuple[str, str, ReleaseName]


def key_of(seen: Seen) -> Key:
    return seen.address, seen.mac, seen.release


def read_strangers(tree: Tree) -> dict[Key, Seen]:
    """The unverified records.  Raises DamagedRecordError."""
    content = read_bounded(tree.strangers, MOST_BYTES)
    if content is None:
        return {}
    value = parse_record(content)
    if not isinstance(value, list):
        raise DamagedRecordError("is not a list of records")
    found = map(parse_seen, value)
    return {key_of(seen): seen for seen in found}


def add_strangers(tree: Tree, new: Iterable[Seen]) -> None:
    """Add unverified records.  The caller holds the lock of reports.

    A damaged list is renamed: it counts as evidence until a person removes it.
    """
    try:
        records = read_strangers(tree)
    except DamagedRecordError:
        put_aside(tree.strangers)
        records = {}
    before = dict(records)
    for seen in new:
        key = key_of(seen)
        records[key] = merge(records.get(key), seen)
    records = bounded(tree, records)
    if records != before:
        write_strangers(tree, records.values())


def write_strangers(tree: Tree, records: Iterable[Seen]) -> None:
    text = ",\n ".join(json.dumps(SEEN.encode(seen)) for seen in records)
    write_file(tree.strangers, f"[{text}]\n".encode())


def put_aside(path: Path) -> None:
    """Rename a damaged file; under its new name it still counts as evidence."""
    move_away(path, path.with_name(path.name + DAMAGED))


def bounded(tree: Tree, records: dict[Key, Seen]) -> dict[Key, Seen]:
    """The records to keep; drops the oldest ones of the busiest addresses if there are too many."""
    of_address = Counter(seen.address for seen in records.values())
    if len(records) <= MOST and max(of_address.values(), default=0) <= MOST_OF_ADDRESS:
        return records
    newest = dict(sorted(records.items(), key=lambda item: item[1].last, reverse=True))
    needed = find_needed(tree, newest.values())
    loose: dict[str, list[Key]] = {}  # by address, newest first
    for key, seen in newest.items():
        if key not in needed:
            loose.setdefault(seen.address, []).append(key)
    for keys in loose.values():
        for key in keys[MOST_OF_ADDRESS:]:
            del newest[key]
        del keys[MOST_OF_ADDRESS:]
    # Busiest first; no address has more than a few at this point.
    for many in range(MOST_OF_ADDRESS, 0, -1):
        for keys in loose.values():
            if len(newest) <= MOST:
                return newest
            if len(keys) >= many:
                del newest[keys.pop()]
    return newest


def find_needed(tree: Tree, newest_first: Iterable[Seen]) -> Collection[Key]:
    """The newest record of each release that exists."""
    found: dict[ReleaseName, Key] = {}
    for seen in newest_first:
        found.setdefault(seen.release, key_of(seen))
    return {key for release, key in found.items() if tree.release(release).is_dir()}


def find_excess(tree: Tree, macs: Collection[str], most: int) -> list[Path]:
    """The records of machines without one of these MACs, at most `most`; none if they are few.

    A few belong to nodes that were removed from nodes.yaml and may return; very many were left by a
    version that kept one for every unverified report.
    """
    of_nodes = {tree.seen(mac).name for mac in macs}
    folder = tree.path / "seen"
    names = (entry.name for entry in os.scandir(folder))
    found = [name for name in names if RECORD.fullmatch(name) and name not in of_nodes]
    return [folder / name for name in found[:most]] if len(found) > MOST else []


def fold_in(tree: Tree, paths: Iterable[Path]) -> None:
    """Move records of machines that are not in nodes.yaml into the list.

    The caller holds the lock of reports.  A file is removed once the list contains it.
    """
    read: list[Path] = []
    found: list[Seen] = []
    for path in paths:
        try:
            seen = read_seen(path)
        except DamagedRecordError:
            put_aside(path)
            continue
        read.append(path)
        if seen is not None:
            found.append(seen)
    if read:
        add_strangers(tree, found)
    for path in read:
        path.unlink(missing_ok=True)
