# SPDX-License-Identifier: Apache-2.0
"""Receive the kernel messages of nodes (netconsole), as a separate program.

usage: python -m imagebuilder.serve.consoles FOLDER TREE ADDRESS INTERFACE [USER]
in:  FOLDER/consoles, the nodes with netconsole, read again when it changes; the leases
out: TREE/serve/consoles/NODE/TIME.log, a few boots of a node, each of bounded size

Any machine on the network may send anything, without end.  A packet counts for the node that has
its address; all others are dropped unread.  Each node has its own limits.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.errors import RootError
from imagebuilder.files import read_text
from imagebuilder.log import Log
from imagebuilder.nodes.evidence.consoles import (
    NAME,
    SUFFIX,
    ConsoleBoot,
    find_consoles,
    parse_name,
)
from imagebuilder.nodes.evidence.tickets import find_neighbours, read_leases
from imagebuilder.nodes.types import NETCONSOLE_PORT
from imagebuilder.plain import stamp_of
from imagebuilder.serve.remembered import Remembered
from imagebuilder.tree import Tree

NAMES = "consoles"  # the file in FOLDER, and what the process is called
READY = "receiving consoles"
BOOTS = 5  # kept per node
MOST_BYTES = 256_000  # of a boot's file; its predecessor has as much
RATE, BURST = 100.0, 5000.0  # lines a second; a boot begins with all earlier messages
MOST_PACKET = 2048  # netconsole sends at most 1000 bytes
BUFFER = 8 * 1024**2  # bytes of the socket
LOOKUP_SECONDS = 10.0  # seconds until the next look-up of an address
PAUSE = 0.5  # seconds between two reads of the kernel's neighbours
SHORTEST = 5.0  # seconds between two boots of a node
MOST_OPEN = 256  # files
STEP = 1.0  # seconds that a message may be older than its predecessor
# 6,339,5140900,-;text: priority, sequence, microseconds, flags (the kernel's dev-kmsg.rst).
EXTENDED = re.compile(rb"(\d{1,10}),\d{1,20},(\d{1,18}),[^;]{0,100};([^\n]*)")
STAMPED = re.compile(r"\[ *(\d+\.\d+)\] ")
FIRST_WORDS = b"Linux version "


@dataclass
class Receiver:
    """One node's console; `clock` returns seconds."""

    tree: Tree
    node: str
    clock: Callable[[], float]
    log: Log | None = None
    said: float = 0.0  # the time of the kernel's last message
    began: float = float("-inf")
    left: float = BURST
    looked: float = 0.0
    dropped: int = 0

    def __post_init__(self) -> None:
        self.looked = self.clock()
        # After a restart, continue the boot that was being received.
        if boots := find_consoles(self.tree, self.node):
            self.log = Log(boots[-1].path, most=MOST_BYTES)
            times = [found for line in boots[-1].lines() if (found := STAMPED.match(line))]
            self.said = float(times[-1][1]) if times else 0.0

    def take(self, packet: bytes) -> None:
        """Record a packet of the node, or of a machine that uses its address."""
        if not self.may_write():
            self.dropped += 1
            return
        at, text = parse_packet(packet)
        if self.log is None or self.begins(at, text):
            self.begin()
        assert self.log is not None
        if self.dropped:
            self.log.write(f"(dropped {self.dropped} lines that came too fast)".encode())
            self.dropped = 0
        if at is not None:
            self.said = at
        self.log.write(text if at is None else f"[{at:12.6f}] ".encode() + text)

    def may_write(self) -> bool:
        """Whether one more line is within the limits."""
        now = self.clock()
        self.left = min(BURST, self.left + (now - self.looked) * RATE)
        self.looked = now
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def begins(self, at: float | None, text: bytes) -> bool:
        """Whether a message is the first one of a new boot: its clock went back."""
        is_first = text.startswith(FIRST_WORDS) or (at is not None and at < self.said - STEP)
        return is_first and self.clock() - self.began >= SHORTEST

    def begin(self) -> None:
        """Begin the file of a boot and remove the oldest ones."""
        folder = self.tree.consoles(self.node)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self.close()
        path = folder / f"{datetime.now(UTC).strftime(NAME)}{SUFFIX}"
        self.log = Log(path, most=MOST_BYTES)
        self.began, self.said = self.clock(), 0.0
        for boot in find_consoles(self.tree, self.node)[: -(BOOTS - 1)]:
            forget(boot)

    def close(self) -> None:
        if self.log:
            self.log.close()


def forget(boot: ConsoleBoot) -> None:
    """Remove a boot's files."""
    for path in (boot.path, boot.path.with_name(f"{boot.path.name}.1")):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def parse_packet(packet: bytes) -> tuple[float | None, bytes]:
    """The kernel's time in seconds (None without one) and the text of a message."""
    if found := EXTENDED.match(packet):
        return int(found[2]) / 1e6, found[3]
    return None, packet.split(b"\n", 1)[0]


@dataclass
class Owners:
    """Finds the node of an address, if its console is wanted."""

    file: Path
    tree: Tree
    clock: Callable[[], float]
    stamp: object = None
    names: Mapping[str, str] = field(default_factory=dict)
    known: Remembered[tuple[str, float]] = field(default_factory=lambda: Remembered(4096))
    leases: Mapping[str, str] = field(default_factory=dict)
    leased: object = None
    neighbours: Mapping[str, str] = field(default_factory=dict)
    neighbours_read: float = float("-inf")

    def find(self, address: str) -> str:
        """The node with this address; empty for none.

        Caches a node for a while, but not a miss: a machine may get an address and send all its
        messages at once.
        """
        now = self.clock()
        name, until = self.known.get(address, ("", float("-inf")))
        if now < until:
            return name
        self.reload()
        if name := self.names.get(address, "") or self.names.get(self.find_mac(address, now), ""):
            self.known[address] = name, now + LOOKUP_SECONDS
        return name

    def find_mac(self, address: str, now: float) -> str:
        """The MAC with an address, from the leases of our DHCP server or else from the kernel.

        Unknown machines cost little: reads changed leases only, and neighbours twice a second.
        """
        if not self.names:
            return ""
        leases = self.tree.serve / "leases"
        if (stamp := stamp_of(leases)) != self.leased:
            self.leases, self.leased = read_leases(leases), stamp
        if mac := self.leases.get(address):
            return mac
        if now - self.neighbours_read >= PAUSE:
            self.neighbours, self.neighbours_read = find_neighbours(), now
        return self.neighbours.get(address, "")

    def reload(self) -> None:
        """Read the nodes again if they changed."""
        if (stamp := stamp_of(self.file)) != self.stamp:
            with contextlib.suppress(OSError):
                lines = [line.split() for line in read_text(self.file).splitlines()]
                self.names = {key: words[0] for words in lines for key in words[1:]}
                self.stamp = stamp
                self.known.clear()


def receive(end: socket.socket, tree: Tree, owners: Owners) -> None:
    """Receive packets until the program is ended.

    There may be more nodes than files a program may open: those that were quiet the longest are
    closed.  A packet that cannot be recorded is lost, and the next one of its node tried anew.
    """
    receivers: dict[str, Receiver] = {}
    opened: OrderedDict[str, Receiver] = OrderedDict()
    while True:
        packet, (address, _) = end.recvfrom(MOST_PACKET)
        if not (name := owners.find(address)):
            continue
        try:
            if name not in receivers:
                receivers[name] = Receiver(tree, name, time.monotonic)
            receivers[name].take(packet)
        except (OSError, RootError):
            receivers.pop(name, None)
            continue
        opened[name] = receivers[name]
        opened.move_to_end(name)
        if len(opened) > MOST_OPEN:
            opened.popitem(last=False)[1].close()


def open_socket(address: str, interface: str, port: int = NETCONSOLE_PORT) -> socket.socket:
    """A socket for packets to `address` over `interface`."""
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if interface:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
    with contextlib.suppress(OSError, AttributeError):
        end.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), BUFFER)
    end.bind((address, port))
    return end


def drop_rights(tree: Tree, user: str) -> None:
    """Switch to `user`, the only one who may read and write the consoles."""
    folder = tree.serve / "consoles"
    folder.mkdir(exist_ok=True)
    entry = pwd.getpwnam(user) if user else None
    folder.chmod(0o700)
    if entry and os.geteuid() == 0:
        give(folder, entry)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    os.umask(0o077)


def give(folder: Path, entry: pwd.struct_passwd) -> None:
    """Make a user the owner of a folder with all that is in it.

    Who owns it so far may put links in the place of folders meanwhile: nothing is reached by its
    path, and a file with a second name may be one of root's.
    """
    for _, _, names, descriptor in os.fwalk(folder):
        os.fchown(descriptor, entry.pw_uid, entry.pw_gid)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_nlink == 1:
                    os.chown(
                        name, entry.pw_uid, entry.pw_gid,
                        dir_fd=descriptor, follow_symlinks=False,
                    )  # fmt: skip


def main(words: list[str]) -> None:
    """Run as the program that `serve` starts."""
    folder, top, address, interface, user = [*words, ""][:5]
    tree = Tree(Path(top))
    end = open_socket(address, interface)
    # Import as root: the program may be in root's home.
    parse_name("")
    find_neighbours()
    Path("/proc/self/comm").write_text(NAMES)
    (Path(folder) / f"{NAMES}.pid").write_text(f"{os.getpid()}\n")
    drop_rights(tree, user)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for serve, which ends this program
    print(READY, flush=True)
    receive(end, tree, Owners(Path(folder) / NAMES, tree, time.monotonic))


if __name__ == "__main__":
    main(sys.argv[1:])
