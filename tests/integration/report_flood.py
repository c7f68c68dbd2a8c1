# SPDX-License-Identifier: Apache-2.0
"""Somebody on the wire who reports as fast as a connection takes it, each time as another machine.

usage: python -m tests.integration.report_flood SERVER COUNT FROM

It prints how many answers of each status came.
"""

from __future__ import annotations

import re
import socket
import sys
from collections import Counter

TOGETHER = 100  # requests that are sent before their answers are read


def main(server: str, count: int, source: str) -> None:
    """Send `count` reports from the address `source`, and say what was answered."""
    answers: Counter[str] = Counter()
    sent = 0
    while sent < count:
        with socket.create_connection((server, 80), 20, source_address=(source, 0)) as wire:
            for _ in range(5):
                some = min(TOGETHER, count - sent)
                wire.sendall(b"".join(request(number) for number in range(sent, sent + some)))
                answers.update(read_answers(wire, some))
                sent += some
    print(dict(answers))


def request(number: int) -> bytes:
    """The report of a machine that does not exist."""
    mac = ":".join(f"{byte:02x}" for byte in (0x020000000000 + number).to_bytes(6, "big"))
    return (
        f"GET /report/generic/{number % 7}?stage=root&uptime=1.0&node={mac} HTTP/1.1\r\n"
        f"Host: x\r\n\r\n"
    ).encode()


def read_answers(wire: socket.socket, count: int) -> list[str]:
    """The statuses of that many answers; fewer when the server hangs up."""
    found: list[str] = []
    rest = b""
    while len(found) < count:
        data = wire.recv(1 << 16)
        if not data:
            return found
        rest += data
        *whole, rest = re.split(rb"(?=HTTP/1\.1 )", rest)
        found += [answer[9:12].decode() for answer in whole if answer]
        if len(found) == count - 1 and rest.startswith(b"HTTP/1.1 ") and rest.endswith(b"\n"):
            found.append(rest[9:12].decode())
    return found


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
