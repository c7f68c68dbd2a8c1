# SPDX-License-Identifier: Apache-2.0
"""The paths of a root."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from imagebuilder.folders import entries_below
from imagebuilder.root import Root

# Paths with their lstat(2).
Entries = Mapping[str, os.stat_result]


def walk_root(root: Root) -> Iterator[tuple[str, os.stat_result]]:
    """Every path below a root with its lstat(2)."""
    prefix = len(os.fspath(root.path))
    for entry in entries_below(root.path):
        yield entry.path[prefix:], entry.stat(follow_symlinks=False)
