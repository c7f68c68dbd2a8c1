# SPDX-License-Identifier: Apache-2.0
"""What is known of a layer beside its content: size, time, and facts its step found."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from imagebuilder.decode import decode_box, find_object, read_object
from imagebuilder.files import make_folder, read_plain, write_file
from imagebuilder.folders import drop_others

# The layers of a build that did not end stay so long.
UNFINISHED_DAYS = 30
AGAIN = "remove it; only the sizes and times of this layer are lost"


@dataclass(frozen=True)
class Record:
    """One layer's record; sizes in bytes, `seconds` is how long its step took.

    `commit` is what the layer's ref leads to; "" in records of older versions.
    """

    title: str
    size: int
    files: int
    seconds: float
    facts: Mapping[str, int] = field(default_factory=dict)
    commit: str = ""


def record_file(state: Path, digest: str) -> Path:
    return state / "layers" / f"{digest}.json"


def make_record(state: Path, digest: str, record: Record) -> None:
    target = record_file(state, digest)
    make_folder(target.parent)
    write_file(target, json.dumps(asdict(record)).encode())


def find_record(state: Path, digest: str) -> Record | None:
    """Read a record, if there is one.  Raises InputError when it is damaged."""
    path = record_file(state, digest)
    if not path.exists():
        return None
    return decode_box(Record, read_object(path, hint=AGAIN), os.fspath(path), hint=AGAIN)


def drop_records(state: Path, layers: Collection[str]) -> None:
    """Remove all records but those of `layers`.  Nobody may build meanwhile."""
    drop_others(state / "layers", {record_file(state, digest) for digest in layers})


@contextmanager
def unfinished(state: Path, profile: str, layers: Collection[str]) -> Iterator[None]:
    """A block that ends with an image of `layers`; until one does, gc leaves those it has made.

    The note of a build that failed or was killed stays until the same layers become an image, or
    another build of the profile begins.
    """
    note = state / "unfinished" / f"{profile}.json"
    make_folder(note.parent)
    content = json.dumps({"layers": sorted(layers)}).encode()
    write_file(note, content)
    yield
    if note.exists() and read_plain(note) == content:  # not that of a build beside this one
        note.unlink()


def find_unfinished(state: Path) -> set[str]:
    """The layers that builds which did not end would reuse; a damaged note names none."""
    limit = time.time() - UNFINISHED_DAYS * 86_400
    notes = [p for p in (state / "unfinished").glob("*.json") if p.stat().st_mtime > limit]
    listed = ((find_object(note) or {}).get("layers") for note in notes)
    return {str(digest) for layers in listed if isinstance(layers, list) for digest in layers}
