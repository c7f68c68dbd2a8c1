# SPDX-License-Identifier: Apache-2.0
"""Connections to a web server that never get anywhere, held open until this program is ended.

usage: python -m tests.integration.half_open KIND COUNT SOURCE SERVER PATH

KIND is `silent` (nothing is sent), `header` (half a request), or `reader` (the answer is not read).
A connection that the server closes is opened again.  Prints "holding COUNT" when COUNT are open,
or "holding N" with what the server takes after PATIENCE seconds.
"""

from __future__ import annotations

import errno
import resource
import selectors
import socket
import sys
import time

IP_BIND_ADDRESS_NO_PORT = 24
PATIENCE = 45.0  # less than the test has for us
BATCH = 1000  # connections begun before the others are looked at again
BEGUN = {
    "silent": b"",
    "header": b"GET {} HTTP/1.1\r\nHost: node\r\nX-Slow: 1",
    "reader": b"GET {} HTTP/1.1\r\nHost: node\r\n\r\n",
}


class Attack:
    """The connections; `waiting` are not established yet, `open` are."""

    def __init__(self, begun: bytes, source: str, server: str) -> None:
        self.begun, self.source, self.server = begun, source, server
        self.look = selectors.DefaultSelector()
        self.waiting: set[socket.socket] = set()
        self.open: set[socket.socket] = set()

    def connect(self) -> None:
        """Begin one more."""
        line = socket.socket()
        line.setblocking(False)  # noqa: FBT003 - the name of the call says what it is
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        line.bind((self.source, 0))
        if line.connect_ex((self.server, 80)) not in (0, errno.EINPROGRESS):
            line.close()
            return
        self.waiting.add(line)
        self.look.register(line, selectors.EVENT_WRITE)

    def go_on(self, line: socket.socket) -> None:
        """Something happened to a connection: it is open, or at its end."""
        if line in self.waiting:
            self.waiting.discard(line)
            if line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                line.send(self.begun)
                self.open.add(line)
                self.look.modify(line, selectors.EVENT_READ)
                return
        elif line in self.open and b"GET" in self.begun and self.begun.endswith(b"\r\n\r\n"):
            # The answer has begun: it is left where it is, and the end of it goes unseen.
            self.look.unregister(line)
            return
        self.open.discard(line)
        self.look.unregister(line)
        line.close()

    def turn(self, count: int) -> None:
        """Look at all of them, and replace what ended."""
        for _ in range(min(BATCH, count - len(self.open) - len(self.waiting))):
            self.connect()
        for key, _ in self.look.select(0.05):
            if isinstance(key.fileobj, socket.socket):
                try:
                    self.go_on(key.fileobj)
                except OSError:
                    self.open.discard(key.fileobj)
                    self.look.unregister(key.fileobj)
                    key.fileobj.close()


def main(kind: str, count: int, source: str, server: str, path: str) -> None:
    """Hold them until we are ended."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    attack = Attack(BEGUN[kind].replace(b"{}", path.encode()), source, server)
    until, told = time.monotonic() + PATIENCE, False
    while True:
        attack.turn(count)
        if not told and (len(attack.open) >= count or time.monotonic() > until):
            told = True
            print(f"holding {len(attack.open)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6])
