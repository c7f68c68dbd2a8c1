# SPDX-License-Identifier: Apache-2.0
"""Connections that nobody can keep the others out with.

uvicorn waits without end for the first request, and for the rest of one that has begun; it counts
connections of all clients together, and logs a line for each that is one too many.
"""

from __future__ import annotations

import asyncio
import logging
import time

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 20.0  # from a connection, or the first byte of a request, to its last
OF_ONE = 256  # connections of one address; behind a proxy that is everybody
REPEAT_S = 60.0


class Connection(H11Protocol):
    """One connection of a client."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client and self.count_of(self.client[0]) > OF_ONE:
            self.transport.abort()
            return
        self.set_deadline()

    def count_of(self, address: str) -> int:
        """How many connections an address has."""
        clients = (getattr(each, "client", None) for each in self.connections)
        return sum(client is not None and client[0] == address for client in clients)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.drop_deadline()

    def set_deadline(self) -> None:
        """Give a request that is not complete its time; more bytes of it give it no more."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.drop_deadline()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def drop_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


class Seldom(logging.Filter):
    """Lets the same message of a log pass once in REPEAT_S."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if record.exc_info or now - self.said.get(str(record.msg), -REPEAT_S) < REPEAT_S:
            return bool(record.exc_info)
        self.said[str(record.msg)] = now
        return True
