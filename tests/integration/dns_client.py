# SPDX-License-Identifier: Apache-2.0
"""A DNS question over UDP, as a program: prints the status and what came, a line each.

usage: python -m tests.integration.dns_client SERVER NAME...

An address as NAME asks for the name it has.
"""

from __future__ import annotations

import re
import socket
import struct
import sys

SECONDS = 30.0
A, PTR, IN = 1, 12, 1
STATUS = {0: "found", 3: "unknown", 5: "refused"}


def labels(name: str) -> bytes:
    """A name on the wire."""
    return b"".join(bytes((len(part),)) + part.encode() for part in name.split(".")) + b"\0"


def skip_name(data: bytes, at: int) -> int:
    """Where what follows a name begins."""
    while data[at] and data[at] < 0xC0:
        at += 1 + data[at]
    return at + (2 if data[at] else 1)


def read_name(data: bytes, at: int) -> str:
    """The name at a place, with what it points to."""
    parts: list[str] = []
    while data[at]:
        if data[at] >= 0xC0:
            at = ((data[at] & 0x3F) << 8) | data[at + 1]
            continue
        parts.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(parts)


def ask(server: str, name: str) -> str:
    """The status, then every address or name of the answer."""
    backwards = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.(\d+)", name)
    kind = PTR if backwards else A
    asked = ".".join([*reversed(backwards.groups()), "in-addr.arpa"]) if backwards else name
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.settimeout(SECONDS)
        head = struct.pack("!6H", 77, 0x0100, 1, 0, 0, 0)
        end.sendto(head + labels(asked) + struct.pack("!2H", kind, IN), (server, 53))
        data = end.recv(4096)
    _, flags, questions, answers, _, _ = struct.unpack("!6H", data[:12])
    words = [STATUS.get(flags & 15, str(flags & 15))]
    at = 12
    for _ in range(questions):
        at = skip_name(data, at) + 4
    for _ in range(answers):
        at = skip_name(data, at)
        found, _, _, length = struct.unpack("!HHIH", data[at : at + 10])
        at += 10
        words += [socket.inet_ntoa(data[at : at + 4])] if found == A else []
        words += [read_name(data, at)] if found == PTR else []
        at += length
    return " ".join(words)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(ask(sys.argv[1], name))
