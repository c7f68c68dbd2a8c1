# SPDX-License-Identifier: Apache-2.0
"""What only root may look into: the folders of the state, and how that is said to others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import close, make_private
from imagebuilder.rights import check_writable

# All but nightly/, whose pages are for everybody.
PRIVATE = ("debs", "layers", "locks", "logs", "store", "wheels", "work")


def make_state(state: Path) -> None:
    """Make the folders of the state, for root alone.  Raises HostError."""
    check_writable(state)
    try:
        for name in PRIVATE:
            make_private(state / name)
    except OSError as error:
        raise HostError(
            f"cannot make the state directory: {error.strerror}",
            where=error.filename or os.fspath(state),
            hint="name another place with --state or IMAGEBUILDER_STATE",
        ) from error


def close_state(state: Path) -> None:
    """Take from others the folders that an older version left open, where we may."""
    with contextlib.suppress(OSError):
        for name in PRIVATE:
            close(state / name)
