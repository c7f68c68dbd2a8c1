# SPDX-License-Identifier: Apache-2.0
"""Runs a command once for every point and way to spoil it, and tells what did not hold."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.cli import program as cli
from imagebuilder.lock import file as lock_file
from imagebuilder.publish.channel import move as channel
from tests.inject.builder import environment
from tests.inject.cases import (
    CASES,
    PUBLISHING,
    Case,
    copy,
    make_begins,
    project_of,
    store_of,
    tree_of,
)
from tests.inject.judge import Snapshot, State, differences, find_faults, snapshot, state_of
from tests.inject.room import Mode, Steering, world_of
from tests.integration.started import find_descendants

LONGEST = 60.0  # seconds that a command may take
LATER = 5.0  # seconds after which none of its processes may run
INPUT = 2  # exit status of a refusal
CRASHED = 70  # exit status for what should have been an error
HONEST = (1, 3)  # exit statuses of a command that did not do its work


@dataclass(frozen=True)
class Outcome:
    """How a command ended: exit status, negative for a signal, what it said, and what it left."""

    status: int
    said: str
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What the undisturbed command leads to, and how many points it has."""

    before: State
    after: State
    whole: Snapshot
    points: int


@dataclass(frozen=True)
class Found:
    """What was wrong at a point."""

    case: str
    mode: Mode
    point: int
    faults: tuple[str, ...]
    said: str

    def __str__(self) -> str:
        lines = "".join(f"\n    {fault}" for fault in self.faults)
        said = "".join(f"\n    | {line}" for line in self.said.strip().splitlines()[-12:])
        return f"{self.case} {self.mode.name} at {self.point}:{lines}{said}"


def plant() -> None:
    """Let a channel move in two steps and a lock be written in its place: nobody may be killed."""

    def write_file(path: Path, content: bytes, *, owner: int = -1, group: int = -1) -> None:
        with path.open("wb", buffering=0) as stream:
            for line in content.splitlines(keepends=True):
                stream.write(line)
        os.chown(path, owner, group)

    def point_link(link: Path, target: str) -> None:
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    vars(channel)["point_link"] = point_link
    vars(lock_file)["write_file"] = write_file


class Driver:
    """The cases of these names, in one room."""

    def __init__(self, room: Path, names: Iterable[str]) -> None:
        self.world, self.begins, self.said = world_of(room), room / "begins", room / "said"
        self.steering = Steering(room)
        self.environment = environment(room)
        self.mounts = read_mounts()
        if PUBLISHING.keys() & set(names):
            make_begins(self.begins, self.world)

    def begin(self, case: Case) -> None:
        """Put the state that a case begins in into its place."""
        copy(self.begins / case.begin, self.world)

    def run(self, words: Iterable[str], mode: Mode = Mode.COUNT, point: int = 0) -> Outcome:
        """Run imagebuilder in a process group of its own, to the end of all its processes."""
        self.steering.arm(mode, point)
        pid = os.fork()
        if pid == 0:
            self.become(words)
        end = time.monotonic() + LONGEST
        status: int | None = None
        while status is None:
            if (mode is Mode.KILL and self.steering.fired) or time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            done, code = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else None
            time.sleep(0.001)
        said = self.said.read_text(errors="replace")
        if time.monotonic() > end:
            said += f"\nTraceback: it did not end within {LONGEST} s"
        return Outcome(status, said, tuple(self.find_left()))

    def find_left(self) -> Iterator[str]:
        """What a command that has ended leaves running, which is ended, or mounted."""
        end = time.monotonic() + LATER
        while (left := find_descendants()) and time.monotonic() < end:  # orphans are ours
            time.sleep(0.001)
        for pid, line in left.items():
            yield f"process {pid}: {line}"
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if read_mounts() != self.mounts:
            yield "a mount"

    def become(self, words: Iterable[str]) -> None:
        """In the child: run the command as `imagebuilder WORDS` does, and end."""
        status = CRASHED
        try:
            os.setpgid(0, 0)
            sink = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for stream in (1, 2):
                os.dup2(sink, stream)
            os.environ["IMAGEBUILDER_STATE"] = os.fspath(store_of(self.world).parent)
            os.environ["IMAGEBUILDER_TREE"] = os.fspath(tree_of(self.world).path)
            if project_of(self.world).is_dir():
                os.environ.update(self.environment)
            sys.argv = ["imagebuilder", *words]
            self.steering.follow(os.getpid())
            status = cli.run()
        except BaseException:  # noqa: BLE001 - all that a person would see
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def expect(self, case: Case) -> Expected:
        """Run a case undisturbed."""
        self.begin(case)
        before = state_of(self.world)
        done = self.run(case.words)
        assert done.status == 0, done.said
        points = self.steering.count
        return Expected(before, state_of(self.world), snapshot(self.world, case), points)

    def disturb(self, name: str, expected: Expected, mode: Mode, point: int) -> Found | None:
        """Spoil one point of a case; what is wrong then, None when nothing is."""
        case = CASES[name]
        self.begin(case)
        first = self.run(case.words, mode, point)
        fired = self.steering.fired
        faults = [*self.judge_end(first, mode, fired=fired)]
        faults += find_faults(self.world, expected.before, expected.after, done=first.status == 0)
        again = self.run(case.words)
        if again.status == INPUT and case.refusal and case.refusal in again.said:
            # The first one did its work before it failed.
            again = self.run(case.then) if case.then else Outcome(0, "")
        if again.status != 0:
            faults.append(f"the same command again ends with {again.status}: {again.said[-600:]}")
        elif differing := differences(expected.whole, snapshot(self.world, case)):
            faults.append(f"the same command again ends elsewhere: {'; '.join(differing[:6])}")
        elif found := find_faults(self.world, expected.after, expected.after, done=True):
            faults.append(f"after the same command again: {'; '.join(found)}")
        faults += (f"the same command again leaves {what}" for what in again.left)
        return Found(name, mode, point, tuple(faults), first.said) if faults else None

    def judge_end(self, done: Outcome, mode: Mode, *, fired: bool) -> Iterator[str]:
        """What is wrong with the way a command ended."""
        yield from (f"leaves {what}" for what in done.left)
        if "Traceback" in done.said or done.status == CRASHED:
            yield "a traceback"
        if mode is Mode.KILL and fired:
            if done.status != -signal.SIGKILL:
                yield f"was killed and ends with {done.status}"
        elif done.status not in (0, *HONEST):
            yield f"exit status {done.status}"


def read_mounts() -> str:
    """What is mounted here."""
    return Path("/proc/self/mountinfo").read_text()
