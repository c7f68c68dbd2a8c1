# SPDX-License-Identifier: Apache-2.0
"""A private mount namespace in which every program has the shim, and what steers it."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from imagebuilder.process import run

SHIM = Path(__file__).with_name("shim.c")
# ld.so.preload reaches programs that see an environment of our own making, as all of ours do.
ENTER = """
set -eu
mkdir "$1/etc" "$1/scratch"
mount -t overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/scratch" none /etc
echo "$1/shim.so" > /etc/ld.so.preload
shift
exec "$@"
"""


class Mode(IntEnum):
    """What happens at the point."""

    COUNT = 0
    EIO = 1
    FULL = 2
    KILL = 3


class Steering:
    """The memory that the shim shares: whom it counts, up to which point, and what it did."""

    FORM = struct.Struct("5i")

    def __init__(self, room: Path) -> None:
        with (room / "state").open("r+b") as stream:
            self.memory = mmap.mmap(stream.fileno(), self.FORM.size)

    def arm(self, mode: Mode, point: int) -> None:
        """For the process group that follow() names."""
        self.memory[:] = self.FORM.pack(0, 0, point, mode, 0)

    def follow(self, group: int) -> None:
        """Count this process group from now on."""
        self.memory[:4] = struct.pack("i", group)

    @property
    def count(self) -> int:
        return int(self.FORM.unpack(self.memory[:])[1])

    @property
    def fired(self) -> bool:
        return bool(self.FORM.unpack(self.memory[:])[4])


def world_of(room: Path) -> Path:
    """The folder in which calls are counted."""
    return room / "world"


def scratch_of(room: Path) -> Path:
    """What TMPDIR names there: a killed apt leaves files in it."""
    return room / "tmp"


def make_room(room: Path) -> None:
    """Compile the shim for this folder."""
    (room / "state").write_bytes(bytes(Steering.FORM.size))
    world_of(room).mkdir()
    scratch_of(room).mkdir()
    run(
        ["cc", "-O1", "-Wall", "-Wno-array-parameter", "-Werror", "-shared", "-fPIC",
         f'-DSTATE="{room}/state"', f'-DSCOPE="{world_of(room)}/"',
         "-o", room / "shim.so", SHIM, "-ldl"]
    )  # fmt: skip


def inside(room: Path, words: Sequence[str]) -> list[str]:
    """The command that runs this package again, in the namespace."""
    again = [sys.executable, "-m", "tests.inject", "--room", os.fspath(room), *words]
    return ["unshare", "--mount", "sh", "-c", ENTER, "sh", os.fspath(room), *again]
