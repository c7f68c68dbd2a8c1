# SPDX-License-Identifier: Apache-2.0
"""Connections that nobody can keep the others out with.

uvicorn waits without end for the first request, and for the rest of one that has begun; it counts
connections of all clients together, and logs a line for each that is one too many.  asyncio logs a
traceback for each attempt to accept a connection without a free descriptor, thousands a second.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from traceback import walk_tb

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 20.0  # from a connection, or the first byte of a request, to its last
OF_ONE = 256  # connections of one client; behind a proxy that is everybody
AT_ONCE = 256  # connections that are accepted before the first of them is counted
SPARE = 2 * AT_ONCE  # descriptors for those, and for files and programs
FILES = 4096  # descriptors, where the hard limit allows as many
REPEAT_S = 60.0
MOST_SAID = 1000  # messages that are remembered


def allow_connections(most: int) -> int:
    """How many connections there are descriptors for, at most `most`.

    Raises the limit for that: the usual one, for programs that use select(2), is 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = (FILES, hard) if hard != resource.RLIM_INFINITY else (FILES,)
    files = max(soft, min(limits)) if soft != resource.RLIM_INFINITY else FILES
    if files > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return min(most, max(files - SPARE, files // 4))


def client_of(address: str) -> str:
    """Who has an address: of IPv6, one machine has all addresses of a network."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or int(parsed) >> 64)


def networks_of(address: str) -> tuple[str, ...]:
    """The networks of an address, the largest first, and last the client: who has many addresses
    has those of a network.
    """
    client = client_of(address)
    try:
        parsed = ip_address(client if "." in client else address)
    except ValueError:
        return (client,)
    lengths = (48, 56) if isinstance(parsed, IPv6Address) else (16, 24)
    return (*(str(ip_network((parsed, length), strict=False)) for length in lengths), client)


def crowding(networks: Iterable[tuple[str, ...]]) -> Callable[[tuple[str, ...]], tuple[int, ...]]:
    """How many there are of each network of a client, for those of all that are there."""
    counts = Counter(each for one in networks for each in one)
    return lambda one: tuple(counts[each] for each in one)


class Connection(H11Protocol):
    """One connection of a client; `networks` are the client's, `began` is when it connected."""

    deadline: asyncio.TimerHandle | None = None
    networks: tuple[str, ...] = ("",)
    began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.networks = networks_of(self.client[0] if self.client else "")
        self.began = time.monotonic()
        if sum(each.networks[-1] == self.networks[-1] for each in self.others()) > OF_ONE:
            self.give_up()
            return
        self.set_deadline()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.end_one()

    def others(self) -> list[Connection]:
        return [each for each in self.connections if isinstance(each, Connection)]

    def end_one(self) -> None:
        """End the oldest connection that is owed no answer, of the network and of the client with
        the most.

        Whoever sends a request at once gets an answer, however many only hold connections.
        """
        crowd = crowding(each.networks for each in self.others())
        idle = [each for each in self.others() if each.is_idle]
        max(idle, key=lambda each: (crowd(each.networks), -each.began)).give_up()

    @property
    def is_idle(self) -> bool:
        """Whether no whole request waits for the rest of its answer."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered or self.deadline is not None

    def give_up(self) -> None:
        """End the connection; from now on it does not count."""
        self.connections.discard(self)
        self.drop_deadline()
        self.transport.abort()

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
        self.said: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, key = time.monotonic(), key_of(record)
        if now - self.said.get(key, -REPEAT_S) < REPEAT_S:
            return False
        if len(self.said) >= MOST_SAID:
            self.said.clear()
        self.said[key] = now
        return True


def key_of(record: logging.LogRecord) -> tuple[object, ...]:
    """What tells a message from others: its text, and the kind and the place of an error."""
    kind, _, trace = record.exc_info or (None, None, None)
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(trace)]
    return (str(record.msg), kind, *places[-1:])
