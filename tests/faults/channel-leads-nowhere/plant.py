# SPDX-License-Identifier: Apache-2.0
"""A channel whose release was removed."""

from imagebuilder.boot.stand import Stand
from imagebuilder.tree import CANDIDATE


def spoil(stand: Stand) -> None:
    """Let it point to a version that never was."""
    link = stand.view.channel("generic", CANDIDATE)
    link.unlink()
    link.symlink_to("../../http/releases/generic/20200101000000-00000000")
