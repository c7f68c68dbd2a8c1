# SPDX-License-Identifier: Apache-2.0
"""First command of the builder's side: takes the host out of reach, then runs the playbook.

Started by steps/ansible.py in a sandbox that sees the host's tree; the table is a JSON file.  A
playbook may run code here (lookups, `pipe`), so nothing that it could do here reaches the host.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from imagebuilder.checks.room import Inside, staying
from imagebuilder.errors import ImagebuilderError
from imagebuilder.process import Word, become, run
from imagebuilder.sandbox import INSIDE, Bind, Sandbox
from imagebuilder.sandbox_init import (
    DROPPED,
    MS_NODEV,
    MS_NOSUID,
    PR_CAPBSET_DROP,
    libc,
    make_devices,
    make_resolver,
    mount,
)

# mount_setattr(2), the same number on every architecture.
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
END_SECONDS = 10.0
PYTHON = "/usr/bin/python3"
END_ALL = "import os, signal; os.kill(-1, signal.SIGKILL)"


class Table(TypedDict):
    """What steps/ansible.py asks for.  `binds` are pairs: on the host, below INSIDE."""

    work: str
    lower: list[str]
    upper: str
    epoch: int
    network: bool
    room: str
    binds: list[tuple[str, str, bool]]
    project: str
    argv: list[str]
    environment: dict[str, str]
    reach: dict[str, str | int]
    needed: list[str]


@dataclass(frozen=True)
class Here:
    """A wrapper for process.become(): the command as it is, in a fixed environment."""

    environment: Mapping[str, str]
    folder: str

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The command, in its folder."""
        return ["env", f"--chdir={self.folder}", *argv]


def set_read_only(place: str, *, on: bool, recursive: bool = False) -> None:
    """Set or clear the read-only flag of a mount, with all below it.  Raises OSError."""
    change = (MOUNT_ATTR_RDONLY, 0) if on else (0, MOUNT_ATTR_RDONLY)
    attributes = struct.pack("4Q", *change, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    if libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, place.encode(), flags, attributes, 32) != 0:
        raise OSError(ctypes.get_errno(), "mount_setattr", place)


def protect(table: Table) -> None:
    """The host's files read-only, its devices and the sockets of its daemons out of sight."""
    resolver = Path("/etc/resolv.conf")
    names = resolver.read_text() if table["network"] and resolver.exists() else ""
    set_read_only("/", on=True, recursive=True)
    set_read_only(table["work"], on=False)
    make_devices(Path("/dev"))
    if not any(Path(place).is_relative_to("/run") for place in table["needed"]):
        mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    if names and Path(os.path.realpath(resolver)).is_relative_to("/run"):
        make_resolver(names)
    for number in DROPPED.values():
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


@contextmanager
def ended(inside: Inside) -> Iterator[None]:
    """Whatever the playbook left running ends; the sandbox then tidies up its root and ends."""
    try:
        yield
    finally:
        run([PYTHON, "-ISc", END_ALL], sandbox=inside, check=False)
        deadline = time.monotonic() + END_SECONDS
        while Path(f"/proc/{inside.pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def main() -> int:
    """Run the playbook of the table; Ansible's exit status."""
    table: Table = json.loads(Path(sys.argv[1]).read_text())
    protect(table)
    room = Path(table["room"])
    sandbox = Sandbox(
        work=Path(table["work"]),
        lower=tuple(table["lower"]),
        upper=table["upper"],
        epoch=table["epoch"],
        binds=tuple(Bind(Path(s), INSIDE / t, writable=w) for s, t, w in table["binds"]),
        network=table["network"],
        env=(
            ("SYSTEMD_OFFLINE", "1"),
            ("APT_CONFIG", f"{INSIDE}/ansible/apt.conf"),
            ("PYTHONHASHSEED", "0"),  # sets that a template writes out have one order
        ),
    )
    with staying(sandbox, room / "sandbox.log") as inside, ended(inside):
        run([PYTHON, "-IS", INSIDE / "ansible/prepare.py"], sandbox=inside)
        reach = {**table["reach"], "pid": inside.pid, "environment": dict(inside.environment)}
        (room / "reach.json").write_text(json.dumps(reach))
        return become(table["argv"], sandbox=Here(table["environment"], table["project"]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ImagebuilderError, OSError) as error:
        print(f"controller: {error}", file=sys.stderr)
        sys.exit(125)
