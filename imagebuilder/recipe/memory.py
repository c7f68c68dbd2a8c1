# SPDX-License-Identifier: Apache-2.0
"""The documents that the last build of a profile read, for the commands after it.

state/parsed/PROFILE     a seal, and each document by the checksum of its bytes: value and marks

To parse YAML took a fifth of a build of nothing.  Only what the same parser read without a fault is
here: a file that was changed, or is wrong, is parsed as ever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import ruamel.yaml

from imagebuilder.files import make_private, read_plain, write_file
from imagebuilder.folders import drop_others
from imagebuilder.recipe import positions
from imagebuilder.recipe.positions import SHELF, KeyPath, Mark, Parsed, Yaml

Rows = list[tuple[list[str | int], int, int, str]]


def parsed_file(state: Path, profile: str) -> Path:
    return state / "parsed" / profile


def seal(body: bytes) -> bytes:
    """Says that `body` is whole, and that this version of the program and its parser wrote it."""
    source = Path(positions.__file__).read_bytes() + Path(__file__).read_bytes()
    parts = (ruamel.yaml.__version__.encode(), source, body)
    return hashlib.sha256(b"\0".join(parts)).hexdigest().encode()


def recall_documents(state: Path, profile: str) -> None:
    """Spare this command to parse what the last build of the profile did."""
    try:
        head, _, body = read_plain(parsed_file(state, profile)).partition(b"\n")
    except OSError:
        return
    if head == seal(body):
        documents = cast("dict[str, tuple[dict[str, Yaml], Rows, Rows]]", json.loads(body))
        SHELF.before = {
            name: Parsed(value, marks_in(values), marks_in(keys))
            for name, (value, values, keys) in documents.items()
        }


def keep_documents(state: Path, profile: str) -> None:
    """Save the documents that this command read, if one was parsed and the state can be written."""
    read = dict(SHELF.read)
    if read.keys() <= SHELF.before.keys():
        return
    documents = {
        name: (each.value, rows_of(each.values), rows_of(each.keys)) for name, each in read.items()
    }
    path, body = parsed_file(state, profile), json.dumps(documents).encode()
    with suppress(OSError):
        make_private(path.parent)
        write_file(path, seal(body) + b"\n" + body)


def rows_of(marks: Mapping[KeyPath, Mark]) -> Rows:
    return [([*path], mark.line, mark.column, mark.raw) for path, mark in marks.items()]


def marks_in(rows: Rows) -> Mapping[KeyPath, Mark]:
    return {tuple(path): Mark(line, column, raw) for path, line, column, raw in rows}


def drop_documents(state: Path, profiles: Collection[str]) -> None:
    """Remove the files of other profiles."""
    drop_others(state / "parsed", {parsed_file(state, profile) for profile in profiles})
