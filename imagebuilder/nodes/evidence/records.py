# SPDX-License-Identifier: Apache-2.0
"""All records of what machines run, and why they may be incomplete."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.nodes.evidence.seen import DamagedRecordError, Seen, read_seen
from imagebuilder.nodes.evidence.strangers import DAMAGED, FOLDED, MOST, read_strangers
from imagebuilder.nodes.types import Nodes
from imagebuilder.tree import RECORD, Tree

DAMAGED_HINT = (
    "a boot of its node replaces it; otherwise remove it once no machine runs an old release"
)


@dataclass(frozen=True)
class Doubt:
    """Why every release may be in use, and what to do about it."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what}\n  hint: {self.hint}"


@dataclass(frozen=True)
class UseEvidence:
    """All records: files of `nodes`, perhaps a few of removed nodes, and the claims of `strangers`.

    `damaged` are invalid files, which may have named any release; `unread` is the number of records
    of an older version that are not read yet.
    """

    nodes: tuple[Seen, ...]
    strangers: tuple[Seen, ...]
    damaged: tuple[Path, ...]
    unread: int

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Why every release may be in use."""
        found = [
            Doubt(f"the record {path} is damaged and may name it", DAMAGED_HINT)
            for path in self.damaged
        ]
        if self.unread:
            what = f"{self.unread} records of an older version are not read yet, and may name it"
            found.append(Doubt(what, "repeat the command: it reads some each time"))
        return tuple(found)


def read_evidence(tree: Tree, nodes: Nodes | None) -> UseEvidence:
    """Every record; if `nodes` is None (unknown), those of all MACs, up to a limit."""
    folder = tree.path / "seen"
    names = [entry.name for entry in os.scandir(folder)]
    records = [name for name in names if RECORD.fullmatch(name)]
    wanted = {tree.seen(mac).name for node in nodes.nodes for mac in node.macs} if nodes else set()
    others = sorted(name for name in records if name not in wanted)
    unread = others[MOST if nodes else FOLDED :]
    known = sorted({*records} - {*unread})
    damaged = sorted(folder / name for name in names if name.endswith(DAMAGED))
    found: list[Seen] = []
    for name in known:
        try:
            seen = read_seen(folder / name)
        except DamagedRecordError:
            damaged.append(folder / name)
            continue
        if seen is not None:
            found.append(seen)
    try:
        strangers = tuple(read_strangers(tree).values())
    except DamagedRecordError:
        damaged.append(tree.strangers)
        strangers = ()
    return UseEvidence(tuple(found), strangers, tuple(damaged), len(unread))
