# SPDX-License-Identifier: Apache-2.0
"""A sandbox that stays: its root is mounted once, and commands enter it one after the other.

The first process, which is ours, does nothing; nsenter(1) puts each command beside it, in about
5 ms.  The sandbox ends with the context, and with us however we end: the kernel kills its first
process, and with that everything in it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.process import FULL, Word
from imagebuilder.program import Program, program
from imagebuilder.sandbox.init import READY, join_session_keyring
from imagebuilder.sandbox.mounts import SHIFT
from imagebuilder.sandbox.sandbox import Sandbox
from imagebuilder.space import no_space

# Says which process unshare(1) is, whose one child is the first process inside.
SAY_PID = 'echo "pid $$"; exec "$@"'
START_SECONDS = 60
END_SECONDS = 30
NAMESPACES = ("--user", "--mount", "--pid", "--ipc", "--uts", "--net")
# A pipe of ours is opened by its name, too: /dev/stdout.  Nothing inside reaches our terminal.
ENTER = """
pipes=
for stream in 1 2; do [ ! -p /dev/fd/$stream ] || pipes="$pipes /dev/fd/$stream"; done
[ -z "$pipes" ] || chown "$0" $pipes
exec setsid --wait nsenter "$@"
"""


@dataclass(frozen=True)
class Inside:
    """A wrapper for process.run(): the command runs in the sandbox whose first process is `pid`."""

    pid: int
    environment: Mapping[str, str]

    def words(self, argv: Sequence[Word]) -> list[Word]:
        target = [f"--target={self.pid}", *NAMESPACES, "--root", "--wd", "--"]
        return ["sh", "-c", ENTER, f"{SHIFT}:{SHIFT}", *target, *argv]


@contextmanager
def staying(sandbox: Sandbox, log: Path) -> Iterator[Inside]:
    """The sandbox with somebody in it, until the context ends.  Raises WorkError and FullError.

    This thread, and all that it starts from here on, leaves our session's keys behind.
    """
    join_session_keyring()
    argv = ["sh", "-c", SAY_PID, "sh", *sandbox.words([])]
    with program("the sandbox", argv, log) as running:
        try:
            pid = first_process(running)
        except WorkError as error:
            if any(map(FULL.search, running.lines)):
                raise no_space(sandbox.work) from error
            raise
        try:
            yield Inside(pid, sandbox.environment)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # unshare(1) itself ignores a polite signal
            running.wait(END_SECONDS)


def first_process(running: Program) -> int:
    """The number, out here, of the sandbox's first process, once its root is mounted."""
    outer = running.wait_for(r"^pid (\d+)$", START_SECONDS)[1]
    running.wait_for(f"^{READY}$", START_SECONDS)
    pid = outer
    for _ in ("builder's side", "holder", "first process"):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) != 1:
            raise WorkError("the sandbox has ended", hint=f"see {running.log}")
        pid = children[0]
    return int(pid)
