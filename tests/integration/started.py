# SPDX-License-Identifier: Apache-2.0
"""A program under way that tests stop at a moment of their choice, and what it leaves running."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.environment import base_environment
from imagebuilder.folders import paths_below

PR_SET_CHILD_SUBREAPER = 36
# Seconds for what takes one on an idle machine: only what hangs needs them all.  What a test must
# not outlive sleeps longer.
PATIENCE = 60.0


@dataclass(frozen=True)
class Started:
    """A program in a session of its own; what it says is in files of `folder`."""

    pid: int
    folder: Path
    ends: list[int] = field(default_factory=list)  # its exit status, which is told only once

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def find_end(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if not self.ends:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.ends.extend([os.waitstatus_to_exitcode(status)] if pid else [])
        return self.ends[0] if self.ends else None

    def wait(self, seconds: float) -> int:
        """Its exit status, at most `seconds` from now."""
        end = time.monotonic() + seconds
        while (status := self.find_end()) is None:
            assert time.monotonic() < end, f"still runs after {seconds} s\n{self.stderr}"
            time.sleep(0.005)
        return status

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to it alone, or to its whole process group as a terminal does."""
        (os.killpg if group else os.kill)(self.pid, number)


def start(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> Started:
    """Start `argv` beside us; it ends with us."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    words = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
    pid = os.posix_spawnp(
        words[0],
        words,
        {**base_environment(), **env},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.fspath(folder / "stdout"), flags, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, os.fspath(folder / "stderr"), flags, 0o600),
        ],
        setsid=True,
    )
    return Started(pid, folder)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait until `holds()`; `what` is wrong if that never comes."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"after {PATIENCE} s {what}"
        time.sleep(0.005)


@contextmanager
def orphans_are_ours() -> Iterator[None]:
    """Whoever loses its parent becomes our child (prctl(2)), so that none can hide."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def find_descendants(top: int | None = None) -> dict[int, str]:
    """Every living process below `top` (us), whatever its namespace, with its command line."""
    found: dict[int, str] = {}
    for child in children_of(os.getpid() if top is None else top):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if state != "Z":
                found[child] = line
            elif top is None:
                os.waitpid(child, os.WNOHANG)
        found |= find_descendants(child)
    return found


def children_of(pid: int) -> list[int]:
    """The children of every thread of a process."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.extend(map(int, task.read_text().split()))
    return found


def command_lines() -> dict[int, bytes]:
    """What runs on this host, by process; a null byte is after each word.

    Others begin and end meanwhile, for which glob() has no patience.
    """
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(path.name)] = (path / "cmdline").read_bytes()
    return found


def host_state() -> tuple[str, tuple[str, ...]]:
    """What a build must never change: the mount table and /dev, but for what others make there."""
    others = (Path("/dev/pts"), Path("/dev/shm"))
    tops = [path for path in Path("/dev").iterdir() if path not in others]
    devices = sorted(os.fspath(path) for top in tops for path in (top, *paths_below(top)))
    return Path("/proc/self/mountinfo").read_text(), tuple(devices)
