# SPDX-License-Identifier: Apache-2.0
"""Find nodes that answer to ssh, with one long-lived connection each.

Every connection costs a node a process, and sshd blocks an address that connects too often
(PerSourcePenalties in sshd_config(5)), and with it every user of this host.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address

SSH_PORT = 22
PATIENCE = 60.0  # seconds a connection may wait for the greeting
PAUSE = 5.0  # seconds after a failed connection
REFUSED = 1.0  # seconds after a refused one, which costs the node no process
AT_ONCE = 200  # connections
GREETING = b"SSH-"


@dataclass
class SshProbe:
    """A connection until it is given up, or none until the next attempt."""

    line: socket.socket | None = None
    until: float = 0.0

    def close(self) -> None:
        if self.line:
            self.line.close()
        self.line = None


class SshProbes:
    """The connections to all nodes; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float], port: int = SSH_PORT) -> None:
        self.clock = clock
        self.port = port
        self.probes: dict[str, SshProbe] = {}

    def find_open(self, addresses: Collection[str]) -> list[str]:
        """Those of `addresses` whose ssh has greeted us; call it repeatedly.

        Forgets addresses that are no longer passed.  Never waits.
        """
        for address in [one for one in self.probes if one not in addresses]:
            self.probes.pop(address).close()
        for address in addresses:
            if address in self.probes or len(self.probes) < AT_ONCE:
                self.probes.setdefault(address, SshProbe())
        return [address for address, probe in self.probes.items() if self.is_open(address, probe)]

    def is_open(self, address: str, probe: SshProbe) -> bool:
        now = self.clock()
        if probe.line is None and now < probe.until:
            return False
        if probe.line is None:
            probe.line = connect(address, self.port)
            probe.until = now + (PATIENCE if probe.line else PAUSE)
        if probe.line is None:
            return False
        try:
            said = hear(probe.line)
        except ConnectionRefusedError:
            probe.close()
            probe.until = now + REFUSED
            return False
        if said == GREETING:
            probe.close()
            probe.until = now + REFUSED
            return True
        if said is not None or now >= probe.until:
            probe.close()
            probe.until = now + PAUSE
        return False


def connect(address: str, port: int) -> socket.socket | None:
    """Start a connection; None if that fails, for instance without free descriptors."""
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
    """The first bytes: None for none yet, empty at the end.  Raises ConnectionRefusedError."""
    try:
        return line.recv(len(GREETING))
    except BlockingIOError:
        return None
    except ConnectionRefusedError:
        raise
    except OSError:
        return b""
