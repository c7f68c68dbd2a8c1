# SPDX-License-Identifier: Apache-2.0
"""Faults that many nodes share, as one: what writes nodes.yaml repeats a wrong word for each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imagebuilder.errors import Fault

OF_NODE = re.compile(r"nodes\.([A-Za-z0-9_-]+)(?=[.:\[])")
POSITION = re.compile(r"(?::\d{1,9}){0,2}$")


def fold_faults(faults: Sequence[Fault]) -> list[Fault]:
    """`faults`, with those that differ only in the node as one, at the place of the first.

    The set of its nodes reads as in `nodes set`: nodes.n[001-800].group.
    """
    groups: dict[object, list[Fault]] = {}
    for fault in faults:
        file, what = POSITION.sub("", fault.where), OF_NODE.sub("nodes.", fault.what, count=1)
        key = (file, what, fault.hint) if OF_NODE.match(fault.what) else fault
        groups.setdefault(key, []).append(fault)
    return [of_nodes(alike) if len(alike) > 1 else alike[0] for alike in groups.values()]


def of_nodes(alike: Sequence[Fault]) -> Fault:
    from imagebuilder.fleet.select import fold  # slow; few faults are of several nodes

    names = [found[1] for fault in alike if (found := OF_NODE.match(fault.what))]
    first = alike[0]
    return Fault(first.where, OF_NODE.sub(f"nodes.{fold(names)}", first.what, count=1), first.hint)
