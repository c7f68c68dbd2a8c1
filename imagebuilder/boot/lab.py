# SPDX-License-Identifier: Apache-2.0
"""A lab: an isolated network for a server and the machines that it boots.

    lab ---- br0 10.77.0.1 ---- tap0 ---- first machine
              |  what serves      tap1 ---- second machine ...

It is a network and a mount namespace that end with their last process.  The host's network, mounts
and /run are not touched, and ports that the host uses are free here.
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
START_SECONDS = 60  # for what takes one on an idle host
# rpcbind, ganesha and dnsmasq write below /run and /var/lib/nfs: they get their own.  A forward
# delay of the bridge would lose the first seconds of every link.
SET_UP = """\
server=$1
bridge=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/ganesha /run/rpcbind
# Packets lost when a machine was reset must not slow down its next boot.
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save || :
ip link set lo up
ip link add "$bridge" type bridge
ip address add "$server/24" dev "$bridge"
ip link set "$bridge" up
for tap; do ip tuntap add "$tap" mode tap; ip link set "$tap" up; done
echo "ready $$"
exec sleep infinity
"""
# The kernel checks a bridge's ports once a second.
AWAIT_SILENCE = """\
for try in $(seq 30); do [ "$(cat "/sys/class/net/$1/carrier")" = 1 ] || exit 0; sleep 0.1; done
"""


@dataclass(frozen=True)
class Lab:
    """The lab: the process that holds its namespaces, and the folder for logs and other files."""

    holder: int
    work: Path

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The command that runs `argv` in the lab."""
        return ["nsenter", "--target", str(self.holder), "--net", "--mount", "--", *argv]

    def run(
        self, argv: Sequence[Word], *, stdin: bytes | None = None, check: bool = True
    ) -> Completed:
        """Run a program in the lab to its end."""
        return run(self.words(argv), stdin=stdin, check=check)

    def inside(self, path: str) -> Path:
        """The path outside the lab for `path` inside it."""
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
        """A program that runs in the lab."""
        log = self.work / f"{name}.log"
        words = self.words(argv)
        with program(name, words, log, on_line=on_line, dies_by=dies_by) as started:
            yield started


@contextlib.contextmanager
def lab(work: Path, taps: Sequence[str]) -> Iterator[Lab]:
    """An empty lab with a bridge and `taps` that are not connected to it yet.

    `work` is a folder for logs.  Raises HostError if the host cannot make a lab.
    """
    check_tools("unshare", "nsenter", "ip")
    if not TUN.exists():
        raise HostError("is missing", where=str(TUN), hint="run sudo modprobe tun")
    words = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    setup = ["sh", "-euc", SET_UP, "sh", SERVER, BRIDGE, *taps]
    with program("network", [*words, *setup], work / "network.log") as holder:
        try:
            pid = int(holder.wait_for(r"^ready (\d+)$", START_SECONDS)[1])
        except WorkError as error:
            what = f"could not make an isolated network: {error}"
            raise HostError(
                what, hint="this needs root, and a kernel with namespaces and tun devices"
            ) from error
        yield Lab(pid, work)


def plug(lab: Lab, taps: Sequence[str]) -> None:
    """Connect taps to the bridge, and wait until it has seen that no machine is on yet."""
    for tap in taps:
        lab.run(["ip", "link", "set", tap, "master", BRIDGE])
    lab.run(["sh", "-euc", AWAIT_SILENCE, "sh", BRIDGE])


def unplug(lab: Lab, tap: str) -> None:
    """Disconnect a tap from the bridge."""
    lab.run(["ip", "link", "set", tap, "nomaster"])
