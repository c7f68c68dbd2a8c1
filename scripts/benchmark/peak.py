# SPDX-License-Identifier: Apache-2.0
"""Run imagebuilder and write how much memory its own processes took at most.

usage: peak.py FILE ARGUMENT...
in:    ARGUMENT... of the program
out:   FILE, a JSON object in bytes: `program` is the peak of this very process, with those that it
       forked as the proof is, `sandboxes` the most that the first processes of sandboxes took
       together at one time
exit:  the program's

The kernel's own account of a child (wait4(2), getrusage(2)) is the largest of it and everything it
waited for, apt and ostree included; /proc/PID/status is of one process alone.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from pathlib import Path

from imagebuilder.cli.program import run
from scripts.benchmark.spent import children, field_of

INIT = b"imagebuilder.sandbox.init"
INTERVAL_SECONDS = 0.1


def peak_of(process: Path) -> int:
    """Bytes that a process (a folder of /proc) had in memory at most, so far."""
    return field_of(process / "status", "VmHWM")


def forked_now() -> int:
    """Bytes of this process and those it has forked, together; 0 if there are none.

    A page that several have counts once (Pss, proc_pid_smaps(5)).
    """
    ours = Path("/proc/self")
    command = (ours / "cmdline").read_bytes()
    forks = []
    for child in children(ours):
        with contextlib.suppress(OSError):
            if (child / "cmdline").read_bytes() == command:
                forks.append(field_of(child / "smaps_rollup", "Pss"))
    return sum(forks, field_of(ours / "smaps_rollup", "Pss")) if forks else 0


def sandboxes_now() -> int:
    """Bytes of the first processes of the sandboxes that run now: our grandchildren."""
    total = 0
    for child in children(Path("/proc/self")):
        # It may have ended since it was listed.
        with contextlib.suppress(OSError):
            inits = [p for p in children(child) if INIT in (p / "cmdline").read_bytes()]
            total += sum(map(peak_of, inits))
    return total


def main() -> int:
    """Run the program and watch its forks and sandboxes."""
    out, seen, over = Path(sys.argv.pop(1)), [0, 0], threading.Event()

    def watch() -> None:
        while not over.wait(INTERVAL_SECONDS):
            seen[:] = map(max, seen, (forked_now(), sandboxes_now()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    status = run()
    over.set()
    watcher.join()
    most = max(seen[0], peak_of(Path("/proc/self")))
    out.write_text(json.dumps({"program": most, "sandboxes": seen[1]}))
    return status


if __name__ == "__main__":
    sys.exit(main())
