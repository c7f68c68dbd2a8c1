# SPDX-License-Identifier: Apache-2.0
"""Nodes that were told to send their console and sent nothing of a whole boot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from imagebuilder.errors import RootError
from imagebuilder.fleet.state import LAST_STAGE
from imagebuilder.nodes.config import read_config
from imagebuilder.nodes.evidence.boots import read_boots
from imagebuilder.nodes.evidence.consoles import find_consoles
from imagebuilder.nodes.evidence.seen import Seen
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree

WORD = "imagebuilder.netconsole="
SILENT = "its kernel sent nothing in its last boot, although it was told to (netconsole)"


def find_warnings(
    tree: Tree, nodes: Iterable[Node], seen: Mapping[str, Seen | None]
) -> dict[str, tuple[str, ...]]:
    """What a person should know of nodes beside their state, by name.

    Of consoles root alone knows; nobody else is warned.
    """
    wanted = [node for node in nodes if node.netconsole]
    boots = read_boots(tree) if wanted else {}
    found: dict[str, tuple[str, ...]] = {}
    for node in wanted:
        record, last = boots.get(node.name), seen.get(node.name)
        try:
            if record and last and is_silent(tree, node, record.asked, last):
                found[node.name] = (SILENT,)
        except RootError:
            break
    return found


def is_silent(tree: Tree, node: Node, fetched: str, last: Seen) -> bool:
    """Whether nothing came since it fetched its script at `fetched` and went through its initrd."""
    if last.stage != LAST_STAGE or not "" < fetched <= last.last:
        return False
    consoles = find_consoles(tree, node.name)
    begun = datetime.fromisoformat(fetched).timestamp()
    if consoles and consoles[-1].heard >= begun:
        return False
    config = read_config(tree, last.given)  # the setting may be newer than the boot
    return config is not None and any(word.startswith(WORD) for word in config.words)
