# SPDX-License-Identifier: Apache-2.0
"""The record of a boot: which release the owner of a NIC booted last, and when it was seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.files import write_file
from imagebuilder.nodes.seen import check_fields, read_fields
from imagebuilder.publish.find import ReleaseName
from imagebuilder.tree import Tree


@dataclass(frozen=True)
class Seen:
    """What a NIC's owner booted last; times are ISO 8601 in UTC.

    `first` is its first sign with this release, `last` the last one.  `node` is its name in
    nodes.yaml, `root` how it gets its root; both may be empty.  `given` is the ID of what it got
    beside the release (nodes/given.py), empty when its script was from before there were any.
    """

    mac: str
    node: str
    profile: str
    version: str
    address: str
    stage: str
    root: str
    first: str
    last: str
    given: str = ""

    @property
    def release(self) -> ReleaseName:
        return ReleaseName(self.profile, self.version)

    @property
    def name(self) -> str:
        """For people: the node's name, or its MAC."""
        return self.node or self.mac

    def as_json(self) -> dict[str, Json]:
        """As a value for its file."""
        return asdict(self)


def parse_seen(value: Json) -> Seen:
    """The record in a decoded value.  Raises DamagedRecordError."""
    return Seen(**check_fields(value))


def read_seen(path: Path) -> Seen | None:
    """One record; None when there is none.  Raises DamagedRecordError."""
    fields: Mapping[str, str] | None = read_fields(path)
    return Seen(**fields) if fields else None


def write_seen(tree: Tree, seen: Seen) -> None:
    """Write one record."""
    write_file(tree.seen(seen.mac), json.dumps(seen.as_json()).encode() + b"\n")


def merge(before: Seen | None, seen: Seen) -> Seen:
    """What is known after a report: the first sign counts from the last change of release."""
    if before is None or before.release != seen.release:
        return seen
    return replace(seen, first=before.first, last=max(before.last, seen.last))
