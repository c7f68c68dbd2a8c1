# SPDX-License-Identifier: Apache-2.0
"""A boot room: a network of its own, in which a server and the machines it boots are alone.

    lab ---- br0 10.77.0.1 ---- tap0 ---- first machine
              |  what serves      tap1 ---- second machine ...

It lives in a network and a mount namespace that end with their last process; the host's network,
mounts and /run are not touched, and ports that are taken there are free here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError, WorkError
from imagebuilder.process import Completed, Word, check_tools, run
from imagebuilder.program import Program, program

SERVER = "10.77.0.1"
BRIDGE = "br0"
TUN = Path("/dev/net/tun")
# rpcbind, ganesha and dnsmasq keep files below /run and /var/lib/nfs: they get their own.  A bridge
# without forward delay, or the first seconds of every link would be lost.
SET_UP = """\
server=$1
wire=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/ganesha /run/rpcbind
# What was lost on connections to a machine that was reset must not slow down its next boot.
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save || :
ip link set lo up
ip link add "$wire" type bridge
ip address add "$server/24" dev "$wire"
ip link set "$wire" up
for tap; do ip tuntap add "$tap" mode tap; ip link set "$tap" up; done
echo "ready $$"
exec sleep infinity
"""
# The kernel looks at a bridge's ports once a second.
AWAIT_SILENCE = """\
for try in $(seq 30); do [ "$(cat "/sys/class/net/$1/carrier")" = 1 ] || exit 0; sleep 0.1; done
"""


@dataclass(frozen=True)
class Lab:
    """The room: the process that holds its namespaces, and where logs and scratch files go."""

    holder: int
    work: Path

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The command that runs `argv` in here."""
        return ["nsenter", "--target", str(self.holder), "--net", "--mount", "--", *argv]

    def run(
        self, argv: Sequence[Word], *, stdin: bytes | None = None, check: bool = True
    ) -> Completed:
        """Run a program in here to its end."""
        return run(self.words(argv), stdin=stdin, check=check)

    def inside(self, path: str) -> Path:
        """Where we see what is at `path` in here."""
        return Path(f"/proc/{self.holder}/root") / path.lstrip("/")

    @contextlib.contextmanager
    def program(
        self,
        name: str,
        argv: Sequence[Word],
        *,
        on_line: Callable[[str], None] | None = None,
        dies_by: str = "KILL",
    ) -> Iterator[Program]:
        """A program that runs in here."""
        log = self.work / f"{name}.log"
        words = self.words(argv)
        with program(name, words, log, on_line=on_line, dies_by=dies_by) as started:
            yield started


@contextlib.contextmanager
def lab(work: Path, taps: Sequence[str]) -> Iterator[Lab]:
    """An empty room with a wire and `taps`, none of them on the wire yet.

    `work` is a directory for logs.  Raises HostError when the host cannot make one.
    """
    check_tools("unshare", "nsenter", "ip")
    if not TUN.exists():
        raise HostError("is missing", where=str(TUN), hint="sudo modprobe tun")
    words = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    setup = ["sh", "-euc", SET_UP, "sh", SERVER, BRIDGE, *taps]
    with program("network", [*words, *setup], work / "network.log") as holder:
        try:
            pid = int(holder.wait_for(r"^ready (\d+)$", 10)[1])
        except WorkError as error:
            what = f"cannot make a network of its own: {error}"
            raise HostError(
                what, hint="namespaces and tun devices need root and the kernel's tun"
            ) from error
        yield Lab(pid, work)


def plug(lab: Lab, taps: Sequence[str]) -> None:
    """Put taps on the wire, and wait until it knows that no machine is switched on yet."""
    for tap in taps:
        lab.run(["ip", "link", "set", tap, "master", BRIDGE])
    lab.run(["sh", "-euc", AWAIT_SILENCE, "sh", BRIDGE])


def unplug(lab: Lab, tap: str) -> None:
    """Take a tap off the wire."""
    lab.run(["ip", "link", "set", tap, "nomaster"])
