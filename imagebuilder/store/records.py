# SPDX-License-Identifier: Apache-2.0
"""What is known of a layer beside its content: size, time, and facts its step found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """One layer's record; sizes in bytes, `seconds` is how long its step took."""

    title: str
    size: int
    files: int
    seconds: float
    facts: Mapping[str, int] = field(default_factory=dict)


def record_file(state: Path, digest: str) -> Path:
    """Where the record of a layer is."""
    return state / "layers" / f"{digest}.json"


def make_record(state: Path, digest: str, record: Record, work: Path) -> None:
    """Write a record, complete or not at all; until then it is in `work`, which is swept."""
    target = record_file(state, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = work / f"record-{digest}"
    partial.write_text(json.dumps(asdict(record)))
    partial.replace(target)


def find_record(state: Path, digest: str) -> Record | None:
    """Read a record, if there is one."""
    path = record_file(state, digest)
    return Record(**json.loads(path.read_text())) if path.exists() else None
