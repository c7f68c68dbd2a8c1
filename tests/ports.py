# SPDX-License-Identifier: Apache-2.0
"""A port for a program that is told where to listen, which nobody else is given before it does."""

from __future__ import annotations

import socket

KEPT: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, for as long as this process lives.

    It stays bound here: the kernel gives it to nobody who asks for any port, and whoever asks for
    this one with SO_REUSEADDR, as servers do, may listen.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    KEPT.append(keeper)
    return int(keeper.getsockname()[1])
