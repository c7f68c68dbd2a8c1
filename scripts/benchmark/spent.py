# SPDX-License-Identifier: Apache-2.0
"""What a piece of work takes: time on the clock, time of all processors, and memory at most.

Memory is what cannot be given back without swapping: anonymous pages of every process below us
(Pss_Anon of smaps_rollup, sampled; a page that two share after fork(2) counts once) and what tmpfs
grew by on the whole host (Shmem), for some tools build in memory.  The page cache is not counted:
every tool fills it, and the kernel takes it back.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import monotonic

PROC = Path("/proc")
INTERVAL_SECONDS = 0.2
KIB = 1024


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and of all processors; `memory` in bytes, at most."""

    wall: float
    cpu: float
    memory: int


def timed(work: Callable[[], object]) -> Spent:
    """Do the work, with the programs it starts and waits for."""
    over, most = threading.Event(), [0]
    tmpfs = shmem()

    def watch() -> None:
        while not over.wait(INTERVAL_SECONDS):
            most[0] = max(most[0], anonymous_below(PROC / "self") + max(0, shmem() - tmpfs))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start, before = monotonic(), getrusage(RUSAGE_CHILDREN)
    try:
        work()
    finally:
        wall, after = monotonic() - start, getrusage(RUSAGE_CHILDREN)
        over.set()
        watcher.join()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu, most[0])


def field_of(path: Path, name: str) -> int:
    """The bytes in a field of /proc/meminfo or of a file of /proc/PID, 0 where it has none."""
    found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    return int(found[1]) * KIB if found else 0


def shmem() -> int:
    """Bytes in tmpfs and shared memory on this host."""
    return field_of(PROC / "meminfo", "Shmem")


def children(process: Path) -> list[Path]:
    """The direct children of a process, a folder of /proc."""
    lists = [(task / "children").read_text() for task in (process / "task").iterdir()]
    return [PROC / pid for text in lists for pid in text.split()]


def descendants(process: Path) -> list[Path]:
    """Every process below one; those that end meanwhile are left out."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for child in children(process):
            found += [child, *descendants(child)]
    return found


def anonymous_below(process: Path) -> int:
    """Bytes of anonymous memory of every process below one."""
    total = 0
    for one in descendants(process):
        with contextlib.suppress(OSError):
            total += field_of(one / "smaps_rollup", "Pss_Anon")
    return total
