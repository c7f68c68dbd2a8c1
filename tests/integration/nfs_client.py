# SPDX-License-Identifier: Apache-2.0
"""A client of NFS version 3 (RFC 1813), as a program: looks up names that no kernel would send.

usage: python -m tests.integration.nfs_client [--user] SERVER EXPORT NAME...
out:   for each name the content of that file, or the number of the error, as JSON

Each NAME is sent as it is, as one name in the exported folder.  With --user, from a port that any
user of a client may take.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import sys
from collections.abc import Iterable

from imagebuilder.nodes.evidence.usage import NFS_PORT
from imagebuilder.serve.config import MOUNTD_PORT

SECONDS = 20.0
MOUNT, NFS, VERSION = 100005, 100003, 3
MNT, LOOKUP, READ = 1, 3, 6
CALL, RPC_VERSION, AUTH_SYS = 0, 2, 1
DENIED = struct.pack("!II", 13, 0)  # as if the file were not for us
LAST = 0x80000000  # of a message's fragments
ATTRIBUTES = 84  # bytes
PRIVILEGED = range(700, 1024)  # ports of root


class RpcClient:
    """A connection to one of a server's programs, as its root."""

    def __init__(self, server: str, port: int, program: int, *, user: bool) -> None:
        self.line = connect(server, port, [0] if user else random.sample(PRIVILEGED, 20))
        self.program = program

    def call(self, procedure: int, arguments: bytes) -> bytes:
        """The results of a call, which begin with a status."""
        root = struct.pack("!I", 0) + text(b"client") + struct.pack("!III", 0, 0, 0)
        head = struct.pack("!IIIIII", 1, CALL, RPC_VERSION, self.program, VERSION, procedure)
        message = head + struct.pack("!I", AUTH_SYS) + text(root) + bytes(8) + arguments
        self.line.sendall(struct.pack("!I", LAST | len(message)) + message)
        answer = b""
        while True:
            (size,) = struct.unpack("!I", self.read(4))
            answer += self.read(size & ~LAST)
            if size & LAST:
                break
        denied, *_ = struct.unpack("!I", answer[8:12])
        return DENIED if denied else answer[24:]  # after the header of an accepted call

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.line.recv(size - len(data))
            assert more, "the server hung up"
            data += more
        return data


def connect(server: str, port: int, sources: Iterable[int]) -> socket.socket:
    """A connection from the first of these ports that is free; 0 is any."""
    for source in sources:
        with contextlib.suppress(OSError):
            return socket.create_connection((server, port), SECONDS, ("", source))
    raise SystemExit(f"cannot connect to port {port} of {server}")


def text(data: bytes) -> bytes:
    """Bytes of any length, as XDR has them."""
    return struct.pack("!I", len(data)) + data + bytes(-len(data) % 4)


def find_handle(results: bytes) -> bytes | int:
    """The handle that a call found, or the number of its error."""
    status, size = struct.unpack("!II", results[:8])
    return int(status) or results[8 : 8 + size]


def read(server: RpcClient, folder: bytes, name: bytes) -> str | int:
    """The content of a file, or the number of an error."""
    found = find_handle(server.call(LOOKUP, text(folder) + text(name)))
    if isinstance(found, int):
        return found
    results = server.call(READ, text(found) + struct.pack("!QI", 0, 4096))
    (status,) = struct.unpack("!I", results[:4])
    return int(status) or results[8 + ATTRIBUTES + 12 :].rstrip(b"\0").decode()


def main(address: str, export: str, *names: str, user: bool) -> None:
    mount = RpcClient(address, MOUNTD_PORT, MOUNT, user=user)
    folder = find_handle(mount.call(MNT, text(export.encode())))
    server = RpcClient(address, NFS_PORT, NFS, user=user)
    if isinstance(folder, int):
        print(json.dumps([folder for _ in names]))
    else:
        print(json.dumps([read(server, folder, name.encode()) for name in names]))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--user"]
    main(*words, user="--user" in sys.argv)
