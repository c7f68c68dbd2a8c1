# SPDX-License-Identifier: Apache-2.0
"""A channel whose release was removed."""

from imagebuilder.boot.server import BootServer
from imagebuilder.tree import CANDIDATE


def spoil(boot_server: BootServer) -> None:
    """Let it point to a version that never was."""
    link = boot_server.view.channel("generic", CANDIDATE)
    link.unlink()
    link.symlink_to("../../http/releases/generic/20200101000000-00000000")
