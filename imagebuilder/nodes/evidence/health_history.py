# SPDX-License-Identifier: Apache-2.0
"""TREE/health/NODE.json: the last changes of a node's health as the node reports it.

Written when a report is read (usage.py), and only after a change: another verdict, other words,
another boot.  Numbers in the words change with every measurement and do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from imagebuilder.decode import JsonFile
from imagebuilder.files import make_folder, write_file
from imagebuilder.nodes.evidence.seen import HealthReport, find_file
from imagebuilder.tree import ReleaseName, ReleaseText, Tree

KEPT = 50  # changes of a node
MOST_BYTES = 256 * 1024
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class HealthChange:
    """A verdict until the next one, and the running release (PROFILE@VERSION)."""

    release: ReleaseText
    report: HealthReport

    def is_told_by(self, release: str, report: HealthReport) -> bool:
        """Whether a report is no change: the same verdict, or a line that is read again."""
        last = self.report
        if report.boot_id != last.boot_id:
            return False
        if report.uptime <= last.uptime:
            return True
        said, before = (NUMBER.sub("#", each.words) for each in (report, last))
        return (release, report.verdict, said) == (self.release, last.verdict, before)


@dataclass(frozen=True)
class HealthHistory:
    """The file, the oldest change first."""

    changes: tuple[HealthChange, ...] = ()


HISTORY = JsonFile(HealthHistory, 1, "the next change of the node's health creates another")


def read_history(tree: Tree, node: str) -> tuple[HealthChange, ...]:
    """The changes of a node, the oldest first; none if the file is damaged."""
    found = find_file(tree.health(node), HISTORY, MOST_BYTES)
    return found.changes if found else ()


def note_health(tree: Tree, node: str, release: ReleaseName, report: HealthReport) -> None:
    """Record a report if it is a change.  The caller holds the lock of reports."""
    known = read_history(tree, node)
    if known and known[-1].is_told_by(str(release), report):
        return
    path = tree.health(node)
    make_folder(path.parent)
    changes = (*known, HealthChange(str(release), report))[-KEPT:]
    write_file(path, HISTORY.render(HealthHistory(changes)).encode())
