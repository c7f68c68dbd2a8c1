# SPDX-License-Identifier: Apache-2.0
"""A FIFO, which is to copies what a socket is."""

import os

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Make it."""
    os.mkfifo(site.path("/usr/lib/agent.fifo"))
