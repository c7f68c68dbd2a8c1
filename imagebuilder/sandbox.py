# SPDX-License-Identifier: Apache-2.0
"""The private namespace every mutation runs in: the host mounts nothing, a kill leaves nothing.

A sandbox stacks layers with overlayfs: `lower` are finished trees, topmost first; what the command
writes lands in `upper`.  The whole of it lives in fresh mount, pid, ipc and uts namespaces whose
first process the kernel kills with us (unshare(1) --kill-child, PR_SET_PDEATHSIG).

    with sandbox ...            host
    /            overlay of lower and upper (pivot_root: the host's tree is gone)
    /proc /sys   own, read-only where it reaches the host
    /dev         own tmpfs with eight nodes
    /run /tmp    own tmpfs; /run/imagebuilder holds what a step may read
    network      none, unless the step declares it
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.process import PASSED_ON, SBIN, Word

INIT = Path(__file__).with_name("sandbox_init.py")
HOSTNAME = "imagebuilder"
INSIDE = Path("/run/imagebuilder")


@dataclass(frozen=True)
class Bind:
    """A file or directory of the host that the sandbox sees at `target`, read-only by default."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class Sandbox:
    """A wrapper for process.run(): the command runs in a root made of `lower` and `upper`.

    All of `lower` (topmost first), `upper` and `scratch` are names below `work`.  With
    `enter=False` the command sees the host's tree read-only instead, but for `work`, and finds
    the stacked root at `work/merged`: that is how engines make the first layer.
    """

    work: Path
    lower: tuple[str, ...]
    upper: str
    epoch: int
    binds: tuple[Bind, ...] = ()
    network: bool = False
    enter: bool = True
    env: tuple[tuple[str, str], ...] = ()

    @property
    def scratch(self) -> str:
        """overlayfs's own directory, beside the upper."""
        return f"{self.upper}.scratch"

    @property
    def merged(self) -> str:
        """Where the overlay is mounted in the namespace, below `work`."""
        return f"{self.upper}.merged"

    @property
    def environment(self) -> Mapping[str, str]:
        """The build's world: fixed, whatever the host's is."""
        fixed = {
            "PATH": SBIN,
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "TERM": "dumb",
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "DEBIAN_FRONTEND": "noninteractive",
            "DEBCONF_NONINTERACTIVE_SEEN": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if not self.enter:
            fixed["TMPDIR"] = os.fspath(self.work / "tmp")
        proxies = [name for name in PASSED_ON if "proxy" in name.lower()]
        passed = {n: os.environ[n] for n in proxies if self.network and n in os.environ}
        return {**fixed, **passed, **dict(self.env)}

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The whole command: unshare, our first process with its table, then `argv`."""
        self.make_directories()
        namespaces = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        if not self.network:
            namespaces.append("--net")
        return [
            "unshare", *namespaces, "--",
            sys.executable, "-I", "-S", INIT, json.dumps(self.table()), *argv,
        ]  # fmt: skip

    def table(self) -> dict[str, object]:
        """What sandbox_init.py reads."""
        resolver = Path("/etc/resolv.conf")
        return {
            "work": os.fspath(self.work),
            "lower": list(self.lower),
            "upper": self.upper,
            "scratch": self.scratch,
            "merged": self.merged,
            "enter": self.enter,
            "hostname": HOSTNAME,
            "binds": [
                {
                    "source": os.fspath(b.source),
                    "target": os.fspath(b.target),
                    "writable": b.writable,
                }
                for b in self.binds
            ],
            "resolver": resolver.read_text() if self.network and resolver.exists() else "",
        }

    def make_directories(self) -> None:
        """The directories that the mounts need, all below `work`."""
        for name in (self.upper, self.scratch, self.merged, "tmp", "empty"):
            (self.work / name).mkdir(parents=True, exist_ok=True)
        # A volatile overlay marks its scratch so that nobody trusts it after a crash.  We never
        # reuse the upper of a step that failed, so the mark is only in the way of the next command.
        shutil.rmtree(self.work / self.scratch / "work" / "incompat", ignore_errors=True)
