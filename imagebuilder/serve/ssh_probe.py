# SPDX-License-Identifier: Apache-2.0
"""Which nodes answer to ssh: one patient connection each.

Every connection costs a node a process, and sshd shuts out an address that comes and goes too often
(PerSourcePenalties in sshd_config(5)), with it whoever works on this host.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address

SSH_PORT = 22
PATIENCE = 60.0  # seconds a connection may wait to be greeted
PAUSE = 5.0  # seconds after one that came to nothing
REFUSED = 1.0  # seconds after one that nobody took, which costs a node no process
AT_ONCE = 200  # connections
GREETING = b"SSH-"


@dataclass
class SshProbe:
    """A connection under way until it is given up, or none until one is tried again."""

    line: socket.socket | None = None
    until: float = 0.0

    def close(self) -> None:
        if self.line:
            self.line.close()
        self.line = None


class SshProbes:
    """The connections to all nodes; `clock` tells seconds."""

    def __init__(self, clock: Callable[[], float], port: int = SSH_PORT) -> None:
        self.clock = clock
        self.port = port
        self.probes: dict[str, SshProbe] = {}

    def find_open(self, addresses: Collection[str]) -> list[str]:
        """Those of `addresses` that have greeted us; to be called again and again.

        An address that is not among them any more is forgotten.  Never waits.
        """
        for address in [one for one in self.probes if one not in addresses]:
            self.probes.pop(address).close()
        for address in addresses:
            if address in self.probes or len(self.probes) < AT_ONCE:
                self.probes.setdefault(address, SshProbe())
        return [address for address, door in self.probes.items() if self.is_open(address, door)]

    def is_open(self, address: str, door: SshProbe) -> bool:
        now = self.clock()
        if door.line is None and now < door.until:
            return False
        if door.line is None:
            door.line = connect(address, self.port)
            door.until = now + (PATIENCE if door.line else PAUSE)
        if door.line is None:
            return False
        try:
            said = hear(door.line)
        except ConnectionRefusedError:
            door.close()
            door.until = now + REFUSED
            return False
        if said == GREETING:
            door.close()
            return True
        if said is not None or now >= door.until:
            door.close()
            door.until = now + PAUSE
        return False


def connect(address: str, port: int) -> socket.socket | None:
    """A connection that is being made; None when we cannot, such as for want of descriptors."""
    line = None
    try:
        host = str(IPv4Address(address))
        line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        line.settimeout(0)
        line.connect_ex((host, port))
    except (OSError, ValueError):
        if line:
            line.close()
        return None
    return line


def hear(line: socket.socket) -> bytes | None:
    """What came first: None for nothing yet, empty for an end.  Raises ConnectionRefusedError."""
    try:
        return line.recv(len(GREETING))
    except BlockingIOError:
        return None
    except ConnectionRefusedError:
        raise
    except OSError:
        return b""
