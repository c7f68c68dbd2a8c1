# SPDX-License-Identifier: Apache-2.0
"""A full disk under the tree, as an error that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import FullError
from imagebuilder.files import is_disk_full

HINT = "imagebuilder gc --releases removes old releases; --tree names another place"


@contextmanager
def space_needed(path: Path) -> Iterator[None]:
    """Turn a full disk into a FullError that says what to do."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise full_disk(path) from error


def full_disk(path: Path) -> FullError:
    """The error for a tree without space."""
    what = "the disk is full; nothing was changed"
    return FullError(what, where=os.fspath(path), hint=HINT)
