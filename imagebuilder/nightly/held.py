# SPDX-License-Identifier: Apache-2.0
"""Whether a person has taken a release back from `stable`."""

from __future__ import annotations

from imagebuilder.nodes.references import find_version
from imagebuilder.publish.find import ReleaseName
from imagebuilder.publish.journal import PROMOTE, find_moves, read_tail
from imagebuilder.tree import STABLE, Tree


def find_hold(tree: Tree, release: ReleaseName) -> str:
    """Why a night does not make a release stable again; "" where nothing is in the way.

    Nights promote; only people roll back, or set `stable` directly.  What they did so to the last
    move away from this release stands until they, or a newer image, move it again.
    """
    now = find_version(tree, release.profile, STABLE)
    if now == release.version:
        return ""
    moves = find_moves(read_tail(tree.journal), release.profile, STABLE, now)
    away = [move for move in moves if move.previous == release.version]
    if not away or away[-1].event == PROMOTE:
        return ""
    by = f"{away[-1].by or 'somebody'} ({away[-1].time[:16].replace('T', ' ')})"
    return (
        f"stable stays {now}: {by} took it back from {release.version}; "
        f"imagebuilder promote {release} ends that"
    )
