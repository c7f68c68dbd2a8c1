# SPDX-License-Identifier: Apache-2.0
"""TREE/seen/asked.json: machines that asked our DHCP server and are none of nodes.yaml.

Everything but the times is what a machine says of itself.  Their number is bounded: the oldest goes
first, and one that boots from the network after those that do not.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from imagebuilder.decode import JsonFile, parse_json
from imagebuilder.errors import InputError
from imagebuilder.files import place_file
from imagebuilder.nodes.evidence.seen import (
    MAC,
    AnyText,
    DamagedRecordError,
    Moment,
    matching,
    read_bounded,
)
from imagebuilder.tree import Tree

MOST = 256
MOST_BYTES = 1024**2


@dataclass(frozen=True)
class Asked:
    """A machine that asked; times are ISO 8601 in UTC.

    `architecture` is the number of its firmware (RFC 5970), None for what does not boot from the
    network.  `address` is what it got from us, or wants; empty where nothing was said.
    """

    mac: Annotated[str, matching(MAC.pattern)]
    vendor: AnyText
    architecture: int | None
    address: Annotated[str, matching(r"[0-9.]*")]
    first: Moment
    last: Moment


@dataclass(frozen=True)
class AskedRecords:
    """The file, the oldest first."""

    machines: tuple[Asked, ...] = ()


ASKED_FILE = JsonFile(AskedRecords, 1, "remove it: machines that ask again make another")


def read_asked(tree: Tree) -> tuple[Asked, ...]:
    """Who asked; nobody where the file is missing or damaged: it only proposes."""
    with contextlib.suppress(DamagedRecordError, InputError):
        if content := read_bounded(tree.asked, MOST_BYTES):
            return ASKED_FILE.decode(parse_json(content, ""), "").machines
    return ()


def write_asked(tree: Tree, machines: Iterable[Asked]) -> None:
    """Write it down."""
    records = AskedRecords(tuple(machines))
    text = json.dumps(ASKED_FILE.encode(records), indent=1)
    place_file(tree.asked, f"{text}\n".encode())
