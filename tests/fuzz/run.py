# SPDX-License-Identifier: Apache-2.0
"""Runs mutated files: only our errors may come out, in time, and nothing outside is touched."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from imagebuilder.errors import ImagebuilderError
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS, Load

MAX_SECONDS = 2.0  # of the processor, with programs that were started
HANGS = 60  # seconds of the clock, after which the process ends with a traceback
# What may be started: a template within limits, gpg for a vendor's key, and who has an address.
PROGRAMS = re.compile(
    r"imagebuilder\.recipe\.template|'gpg', '--batch'|'ip', '-4', 'neighbour', 'show'"
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.mkdir": 1, "os.symlink": 2, "os.link": 2,
    "os.truncate": 1, "os.chmod": 1, "os.chown": 1, "shutil.rmtree": 1, "os.mkfifo": 1,
    "os.utime": 1, "os.setxattr": 1,
}  # fmt: skip


@dataclass
class Result:
    """What came of the cases of one target; seconds are of the processor.

    `begins` says that the file they are made from is good.
    """

    cases: int = 0
    refused: int = 0
    begins: bool = False
    slowest: float = 0.0
    violations: list[str] = field(default_factory=list)


@dataclass
class Watch:
    """Which changes of the file system happened outside `inside`; off until it is needed."""

    inside: str
    active: bool = False
    touched: list[str] = field(default_factory=list)

    def hear(self, event: str, args: tuple[object, ...]) -> None:
        """What an audit hook is told (sys.addaudithook())."""
        if not self.active:
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & WRITING:
                self.note(event, path)
        elif event in CHANGES:
            many = CHANGES[event]
            folder = next((fd for fd in args[many:] if isinstance(fd, int) and fd > 2), -1)
            for path in args[:many]:
                self.note(event, path, folder if event != "os.mkdir" else -1)
        elif event == "subprocess.Popen" and not PROGRAMS.search(str(args[1])):
            self.touched.append(f"{event} {args[1]}")

    def note(self, event: str, path: object, folder: int = -1) -> None:
        """Take a change down unless it is where changes may be; `folder` is open."""
        if not isinstance(path, str | bytes | os.PathLike):
            return  # an open file
        name = Path(os.fsdecode(path))
        if folder >= 0:
            name = Path(f"/proc/self/fd/{folder}").readlink() / name
        shown = os.path.normpath(name.absolute())
        if not shown.startswith((self.inside, "/dev/null")) and "__pycache__" not in shown:
            self.touched.append(f"{event} {shown}")


WATCHES: list[Watch] = []  # those in use


@cache
def listen() -> None:
    """Add the audit hook, once: Python never removes one, and each slows down every file access."""

    def hear(event: str, args: tuple[object, ...]) -> None:
        for watch in WATCHES:
            watch.hear(event, args)

    sys.addaudithook(hear)


@contextmanager
def scratch() -> Iterator[Watch]:
    """A temporary folder, which temporary files of the code under test are in too."""
    place = tempfile.mkdtemp(prefix="fuzz-")
    before = tempfile.tempdir
    tempfile.tempdir = place
    watch = Watch(place)
    listen()
    WATCHES.append(watch)
    try:
        yield watch
    finally:
        WATCHES.remove(watch)
        tempfile.tempdir = before
        shutil.rmtree(place, ignore_errors=True)


def case_of(name: str, seed: int, number: int) -> bytes:
    """The file of one case: the same whenever it is asked for."""
    random = Random(f"{seed} {name} {number}")
    good, *others = TARGETS[name].seeds
    return mutate(random.choice(others) if others and random.random() < 0.3 else good, random)


def run_cases(
    name: str, numbers: Sequence[int], seed: int, tell: Callable[[str], None] = print
) -> Result:
    """Run cases of a target; `tell` hears of each violation at once."""
    result = Result()
    with scratch() as watch:
        place = Path(watch.inside) / name
        place.mkdir()
        load = TARGETS[name].begin(place)
        result.begins = run_case(load, TARGETS[name].seeds[0]) == (False, "")
        for number in numbers:
            content = case_of(name, seed, number)
            faulthandler.dump_traceback_later(HANGS, exit=True)
            begun, watch.active = used(), True
            refused, problem = run_case(load, content)
            watch.active, took = False, used() - begun
            faulthandler.cancel_dump_traceback_later()
            problems = [problem] if problem else []
            if took > MAX_SECONDS:
                problems.append(f"took {took:.1f} s")
            problems += [f"touched: {each}" for each in watch.touched]
            watch.touched.clear()
            for each in problems:
                result.violations.append(f"{name} {number}: {each}")
                tell(result.violations[-1])
            result.cases += 1
            result.refused += refused
            result.slowest = max(result.slowest, took)
    return result


def run_case(load: Load, content: bytes) -> tuple[bool, str]:
    """Whether a file was refused, and what went wrong."""
    try:
        load(content)
    except ImagebuilderError as error:
        faults = error.faults
        bare = [fault for fault in faults if not fault.what.strip()]
        try:
            str(error).encode()
        except UnicodeEncodeError:
            return True, f"its error cannot be printed: {error!r}"
        return True, "an error says nothing" if bare else ""
    except Exception:  # noqa: BLE001 - that is what is looked for
        return False, traceback.format_exc(limit=-6)
    return False, ""


def used() -> float:
    """Seconds of the processor that this process and its children have used."""
    return sum(os.times()[:4])
