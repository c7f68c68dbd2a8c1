# SPDX-License-Identifier: Apache-2.0
"""A full disk under the tree, as an error that says what to do."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from imagebuilder.errors import FullError
from imagebuilder.files import filling

WHAT = "the disk is full; nothing was changed"
HINT = "remove old releases with imagebuilder gc --releases, or name another tree with --tree"


def space_needed(path: Path) -> AbstractContextManager[None]:
    """Turn a full disk into a FullError that says what to do."""
    return filling(path, HINT, WHAT)


def full_disk(path: Path) -> FullError:
    """The error for a tree without space."""
    return FullError(WHAT, where=os.fspath(path), hint=HINT)
