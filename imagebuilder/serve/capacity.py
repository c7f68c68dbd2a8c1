# SPDX-License-Identifier: Apache-2.0
"""How many connections the web server accepts.

nginx limits connections by address only once a request is complete.  An incomplete request holds
its connection until it times out, and one address can hold as many as it has ports.  So the server
accepts more connections than that.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

PORTS_OF_AN_ADDRESS = 65536
FOR_THE_OTHERS = 16384
MOST_WORKERS = 16
FEWEST_FILES = 1024
LISTENING = 64  # files of a worker that are not connections of clients


@dataclass(frozen=True)
class Capacity:
    """Processes of nginx, and what each may have: connections, and open files."""

    workers: int
    connections: int
    files: int


def plan_capacity(cpus: int, most_files: int) -> Capacity:
    """The capacity on a host with `cpus`, where a process may open `most_files` files.

    The kernel spreads connections evenly over the workers (`reuseport`).  A download takes two
    files: the connection and the file that is sent.
    """
    workers = max(1, min(cpus, MOST_WORKERS))
    wanted = (PORTS_OF_AN_ADDRESS + FOR_THE_OTHERS) // workers
    files = min(wanted + FOR_THE_OTHERS, max(most_files, FEWEST_FILES))
    return Capacity(workers, min(wanted, files - LISTENING), files)


SMALLEST = plan_capacity(1, FEWEST_FILES)


def find_capacity(*, installed: bool) -> Capacity:
    """The capacity on this host; `installed` for daemons of systemd, whose unit sets LimitNOFILE.

    Without the privilege to raise limits, as in some containers, the hard limit applies.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bounded = hard != resource.RLIM_INFINITY and not installed
    most = hard if bounded else PORTS_OF_AN_ADDRESS * 2
    return plan_capacity(os.cpu_count() or 1, most)
