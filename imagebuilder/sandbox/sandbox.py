# SPDX-License-Identifier: Apache-2.0
"""The private namespace every mutation runs in: the host mounts nothing, a kill leaves nothing.

A sandbox stacks layers with overlayfs: `lower` are finished trees, topmost first; what the command
writes lands in `upper`.  The whole of it lives in fresh mount, pid, ipc and uts namespaces whose
first process the kernel kills with us (unshare(1) --kill-child, PR_SET_PDEATHSIG), and in a user
namespace: root inside is nobody on the host (init.py, docs/sandbox.md).

    with sandbox ...            host
    /            overlay of lower and upper (pivot_root: the host's tree is gone)
    /proc /sys   own; what reaches the host belongs to its root, who is not in the sandbox
    /dev         own tmpfs with eight nodes
    /run /tmp    own tmpfs; /run/imagebuilder holds what a step may read
    network      none, unless the step declares it
"""

from __future__ import annotations

import marshal
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.environment import PASSED_ON, SBIN
from imagebuilder.errors import HostError
from imagebuilder.files import scratch
from imagebuilder.process import Word, run
from imagebuilder.sandbox.filter import filter_program

if TYPE_CHECKING:
    from imagebuilder.sandbox.mounts import Table

# Isolated from the person's Python, and without site-packages: it starts within some milliseconds.
START = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from imagebuilder.sandbox.init import start; start()"
)
HOSTNAME = "imagebuilder"
INSIDE = Path("/run/imagebuilder")
# What an engine sees of the host: programs, and what they are set up with.  No home, no keys, no
# accounts' secrets, no state of services.
HOSTS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    *(f"/etc/{name}" for name in (
        "alternatives", "ca-certificates", "group", "host.conf", "hosts", "ld.so.cache",
        "ld.so.conf", "ld.so.conf.d", "localtime", "login.defs", "lsb-release", "magic",
        "mime.types", "mke2fs.conf", "nsswitch.conf", "os-release", "passwd", "perl",
        "pki/tls/certs", "protocols", "python3", "python3.11", "python3.12", "python3.13",
        "services", "shells", "ssl/certs", "ssl/openssl.cnf", "timezone",
    )),
)  # fmt: skip
# Where this program and its interpreter lie.
OURS = tuple(dict.fromkeys(
    Path(place).resolve() for place in (sys.prefix, sys.base_prefix, Path(__file__).parents[1])
))  # fmt: skip


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
    `enter=False` the command sees the host's programs read-only instead (HOSTS and `view`, as
    everybody may read them), and `work`, where it finds the stacked root at `work/merged`: that is
    how engines make the first layer.  There it can write everywhere, or with `writes` only into the
    root, `work/tmp` and what they name below `work`.
    """

    work: Path
    lower: tuple[str, ...]
    upper: str
    epoch: int
    binds: tuple[Bind, ...] = ()
    network: bool = False
    enter: bool = True
    env: tuple[tuple[str, str], ...] = ()
    view: tuple[Path, ...] = ()
    writes: tuple[str, ...] | None = None

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
        """The whole command: unshare, our first process with its table, then `argv`, if any."""
        self.make_directories()
        return [
            "unshare", "--mount", "--fork", "--kill-child", "--",
            sys.executable, "-I", "-S", "-B", "-c", START, Path(__file__).parents[2],
            self.encode_table(), *argv,
        ]  # fmt: skip

    def encode_table(self) -> str:
        """The table as one word, of a format that needs no module (init.read_table())."""
        return marshal.dumps(self.table()).hex()  # type: ignore[arg-type]

    def table(self) -> Table:
        """What init.py reads."""
        resolver = Path("/etc/resolv.conf")
        return {
            "work": os.fspath(self.work),
            "lower": list(self.lower),
            "upper": self.upper,
            "scratch": self.scratch,
            "merged": self.merged,
            "enter": self.enter,
            "view": [] if self.enter else [*HOSTS, *map(os.fspath, (*OURS, *self.view))],
            "writes": None if self.writes is None else ["tmp", *self.writes],
            "network": self.network,
            "filter": filter_program(os.uname().machine),
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
        for name in (self.upper, self.scratch, self.merged, "tmp", "empty", "view"):
            (self.work / name).mkdir(parents=True, exist_ok=True)
        # A volatile overlay marks its scratch so that nobody trusts it after a crash.  We never
        # reuse the upper of a step that failed, so the mark is only in the way of the next command.
        shutil.rmtree(self.work / self.scratch / "work" / "incompat", ignore_errors=True)


def folders_of(program: Path) -> tuple[Path, ...]:
    """Where a program outside the system's folders lies, with its interpreter: for `view`."""
    top = program.resolve().parent.parent
    if top.is_relative_to("/usr"):
        return ()
    settings = top / "pyvenv.cfg"
    lines = settings.read_text().splitlines() if settings.is_file() else []
    homes = [line.partition("=")[2].strip() for line in lines if line.startswith("home")]
    return (program.parent, top, *(Path(home).resolve().parent for home in homes))


def check_sandbox(state: Path) -> None:
    """Raise HostError when this host cannot run a sandbox on layers in `state`.

    There is no weaker kind to fall back to: what runs in a sandbox may be hostile.
    """
    there = next(folder for folder in (state, *state.parents) if folder.is_dir())
    with scratch(there, ".imagebuilder-sandbox-") as work:
        # An engine's view: it needs no root to run a program in.
        trial = Sandbox(work, ("empty",), "trial", 0, enter=False)
        done = run(["true"], sandbox=trial, check=False)
    if done.status != 0:
        said = done.stderr.strip().splitlines()
        raise HostError(
            f"cannot start a sandbox here: {said[-1] if said else f'exit status {done.status}'}",
            where=os.fspath(there),
            hint="a sandbox needs Linux 5.19 or newer, user namespaces (sysctl "
            "user.max_user_namespaces above 0; a container may forbid them: build on the host or "
            "in a virtual machine) and the state on ext4, xfs or btrfs (IMAGEBUILDER_STATE)",
        )
