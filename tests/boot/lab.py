# SPDX-License-Identifier: Apache-2.0
"""The boot room of tests: the product's own, with servers that are started one by one.

lab ---- br0 10.77.0.1 ---- tap0 ---- first NIC of a machine
          |  `imagebuilder serve`, or one by one:        tap1: second NIC, nobody answers
          |  dnsmasq: addresses, host names
          |  http.server: squashfs roots, reports
          |  nfs-ganesha: roots
          +---- router 10.77.0.2: a home router in a network namespace of its own
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.boot.lab import SERVER, Lab, plug
from imagebuilder.boot.lab import lab as unplugged
from imagebuilder.process import Word
from imagebuilder.program import Program
from tests.integration.started import PATIENCE

ROUTER = "10.77.0.2"
ABSENT = "10.77.0.99"
TAPS = ("tap0", "tap1")
# What a home router does on its wire: waits for the cable, then gives addresses and nothing else.
ROUTE = f"""\
ip link set lo up
echo "ready $$"
until ip link set wan up 2> /dev/null; do sleep 0.1; done
ip address add {ROUTER}/24 dev wan
exec dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --user=root --log-dhcp \\
    --log-facility=- --interface=wan --bind-interfaces --dhcp-authoritative --pid-file= \\
    --dhcp-range=10.77.0.160,10.77.0.199,255.255.255.0,1h "--dhcp-leasefile=$1"
"""
GANESHA = """\
NFS_CORE_PARAM {{
    Protocols = 3, 4; Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false;
    Bind_addr = {server};
}}
NFSv4 {{ Graceless = true; Only_Numeric_Owners = true; RecoveryRoot = "{work}"; }}
EXPORT_DEFAULTS {{ Access_Type = RO; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; }}
{exports}
"""
AWAIT_RPCBIND = """\
for try in $(seq 200); do ss -Hltn 'sport = :111' | grep -q . && exit; sleep 0.1; done
echo "rpcbind does not open its port" >&2
exit 1
"""
EXPORT = """\
EXPORT {{ Export_Id = {number}; Path = "{path}"; Pseudo = "/{name}"; FSAL {{ Name = VFS; }} }}
"""


@contextlib.contextmanager
def lab(work: Path) -> Iterator[Lab]:
    """An empty room whose first tap is on the wire; `work` is a directory for logs."""
    with unplugged(work, TAPS) as room:
        plug(room, TAPS[:1])
        yield room


@contextlib.contextmanager
def dhcp_server(room: Lab, names: Sequence[tuple[str, str]] = ()) -> Iterator[Program]:
    """dnsmasq on the bridge; `names` are pairs of MAC address and host name."""
    argv: list[Word] = [
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root",
        "--interface=br0", "--bind-interfaces", "--log-dhcp", "--log-facility=-",
        "--dhcp-range=10.77.0.100,10.77.0.150,255.255.255.0,1h", "--dhcp-authoritative",
        f"--dhcp-leasefile={room.work}/leases", "--pid-file=",
        *(f"--dhcp-host={mac},{name}" for mac, name in names),
    ]  # fmt: skip
    with room.program("dnsmasq", argv) as started:
        started.wait_for("DHCP, IP range", PATIENCE)
        yield started


@contextlib.contextmanager
def router(room: Lab) -> Iterator[Program]:
    """A home router on the wire: a second DHCP server that knows nothing of booting."""
    argv: list[Word] = [
        "unshare",
        "--net",
        "--",
        "sh",
        "-euc",
        ROUTE,
        "router",
        room.work / "router-leases",
    ]
    with room.program("router", argv) as started:
        pid = started.wait_for(r"^ready (\d+)$", PATIENCE)[1]
        room.run(["ip", "link", "add", "lan", "master", "br0", "type", "veth",
                  "peer", "name", "wan", "netns", pid])  # fmt: skip
        room.run(["ip", "link", "set", "lan", "up"])
        started.wait_for("DHCP, IP range", PATIENCE)
        yield started


@contextlib.contextmanager
def web_server(room: Lab, folder: Path) -> Iterator[Program]:
    """Python's http.server on port 80; its lines are the requests."""
    argv = [sys.executable, "-u", "-m", "http.server", "80", "--bind", SERVER]
    with room.program("http", [*argv, "--directory", folder]) as started:
        started.wait_for("Serving HTTP", PATIENCE)
        yield started


@contextlib.contextmanager
def nfs_server(room: Lab, exports: Sequence[tuple[str, Path]]) -> Iterator[Program]:
    """nfs-ganesha with NFSv3 and v4; `exports` are pairs of name and tree, read-only.

    Over v4 a tree is at /NAME, over v3 at its own path.
    """
    config = room.work / "ganesha.conf"
    listed = (
        EXPORT.format(number=number, name=name, path=path)
        for number, (name, path) in enumerate(exports, 1)
    )
    config.write_text(
        GANESHA.format(server=SERVER, work=room.work / "nfs", exports="".join(listed))
    )
    (room.work / "nfs").mkdir(exist_ok=True)
    argv: list[Word] = [
        "ganesha.nfsd",
        "-F",
        "-f",
        config,
        "-L",
        "STDOUT",
        "-p",
        "/run/ganesha/pid",
    ]
    with room.program("rpcbind", ["rpcbind", "-f", "-w"]):
        # ganesha ends when nobody takes its registration.
        room.run(["sh", "-euc", AWAIT_RPCBIND])
        with room.program("ganesha", argv) as started:
            started.wait_for("NFS SERVER INITIALIZED", PATIENCE)
            yield started


def address_of(room: Lab, mac: str) -> str:
    """The address that DHCP gave to `mac`, from dnsmasq's lease file."""
    rows = [line.split() for line in (room.work / "leases").read_text().splitlines()]
    found = [row[2] for row in rows if row[1] == mac]
    assert len(found) == 1, f"{mac} has {len(found)} leases"
    return found[0]
