# SPDX-License-Identifier: Apache-2.0
"""What `imagebuilder web` has reported, and what it has not sent yet.

STATE/notify/nodes.json
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.decode import JsonFile
from imagebuilder.errors import InputError
from imagebuilder.notify.send import WaitingMessage
from imagebuilder.tree import Tree
from imagebuilder.web.node_changes import ReportedNode

FOLDER, FILE = "notify", "nodes.json"


@dataclass(frozen=True)
class NotifyRecord:
    """The file: of which tree, what was reported of its nodes last, and what is to be sent.

    `nodes` is None as long as nothing is known of nodes, and `interruptions` are the last ones
    of roll-outs that were reported.
    """

    tree: str
    nodes: tuple[ReportedNode, ...] | None = None
    waiting: tuple[WaitingMessage, ...] = ()
    interruptions: tuple[str, ...] = ()


RECORD = JsonFile(NotifyRecord, 1, "remove it: nodes are reported from their next change on")


def load_record(path: Path, tree: Tree, warn: Callable[[str], None]) -> NotifyRecord | None:
    """What was written of this tree; None if nothing was, or it is damaged."""
    if not path.exists():
        return None
    try:
        record = RECORD.load(path)
    except InputError as error:
        warn(f"starting over with notifications about nodes: {error}")
        return None
    return record if record.tree == os.fspath(tree.path) else None


def find_interruptions(state: Path, tree: Tree) -> frozenset[str]:
    """The interruptions of roll-outs that a web server with this state folder has reported."""
    try:
        record = load_record(state / FOLDER / FILE, tree, lambda _: None)
    except OSError:  # of a server that another user runs
        return frozenset()
    return frozenset(record.interruptions) if record else frozenset()
