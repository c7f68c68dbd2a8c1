# SPDX-License-Identifier: Apache-2.0
"""The page's way to `imagebuilder act`: a socket of systemd, or a child that outlives the page."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from imagebuilder.decode import decode_box, encode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.environment import OWN_MODULE
from imagebuilder.errors import ImagebuilderError
from imagebuilder.process import start_apart
from imagebuilder.tree import Tree
from imagebuilder.web.act import ActAnswer
from imagebuilder.web.connection import client_of
from imagebuilder.web.orders import ActOrder

SECONDS = 60.0  # for an answer: a program has to start
MOST_ANSWER = 64 * 1024
AT_ONCE, WAITING = 4, 8
# How often somebody may be wrong about a token, per client.
WRONG, WITHIN, MOST_ADDRESSES = 10, 60.0, 4096


class Lockout:
    """Counts wrong tokens by client: who had too many within a minute has to wait."""

    def __init__(self) -> None:
        self._wrong: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def wait(self, address: str) -> int:
        """Seconds until who has this address may try again; 0 for now."""
        with self._lock:
            times = self._fresh(client_of(address))
        return int(WITHIN - (time.monotonic() - times[0])) + 1 if len(times) >= WRONG else 0

    def wrong(self, address: str) -> None:
        client = client_of(address)
        with self._lock:
            times = self._fresh(client)
            self._wrong.pop(client, None)
            self._wrong[client] = [*times, time.monotonic()][-WRONG:]
            while len(self._wrong) > MOST_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]  # the one that was wrong longest ago

    def _fresh(self, client: str) -> list[float]:
        since = time.monotonic() - WITHIN
        return [at for at in self._wrong.get(client, ()) if at > since]


@dataclass(frozen=True)
class ActClient:
    """Where actions are asked for.

    `tokens` is the file of tokens: while there is none, nobody acts.  The page need not be able to
    read it.  Without a `place`, a socket, the program is started as a child for each request.
    """

    tree: Tree
    tokens: Path
    place: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    lockout: Lockout = field(default_factory=Lockout)
    # Apart from the few threads that answer everybody.
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))
    places: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(AT_ONCE + WAITING)
    )

    @property
    def is_open(self) -> bool:
        try:
            return self.tokens.is_file()
        except OSError:
            return False

    async def ask_soon(
        self, token: str, address: str, order: Mapping[str, Json] | None
    ) -> ActAnswer:
        """What ask() answers; when AT_ONCE are asked and WAITING wait, that this one may not."""
        if not self.places.acquire(blocking=False):
            return ActAnswer(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at a time")
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.threads, self.ask, token, address, order)
        finally:
            self.places.release()

    def ask(self, token: str, address: str, order: Mapping[str, Json] | None) -> ActAnswer:
        """What the program answers; a status of HTTP in any case.  Blocks."""
        if seconds := self.lockout.wait(address):
            words = f"too many wrong tokens from {address}: wait {seconds} s"
            return ActAnswer(HTTPStatus.TOO_MANY_REQUESTS, words)
        request: dict[str, Json] = {"token": token, "address": address, "order": None}
        if order is not None:
            request["order"] = dict(order)
        try:
            answer = self.send(json.dumps(request).encode() + b"\n")
        except (OSError, ImagebuilderError) as error:
            words = f"actions are not available: {error}"
            return ActAnswer(HTTPStatus.SERVICE_UNAVAILABLE, words)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self.lockout.wrong(address)
        return answer

    def send(self, request: bytes) -> ActAnswer:
        """One request and its answer.  Raises OSError, ImagebuilderError."""
        with self.connect() as sock:
            sock.settimeout(SECONDS)
            sock.sendall(request)
            found = b""
            while b"\n" not in found and len(found) < MOST_ANSWER and (more := sock.recv(65536)):
                found += more
        return decode_box(ActAnswer, parse_object(found, "its answer"), "its answer")

    def connect(self) -> socket.socket:
        if self.place:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(SECONDS)
                sock.connect(str(self.place))
            except OSError:
                sock.close()
                raise
            return sock
        ours, its = socket.socketpair()
        with its:
            argv = [sys.executable, *OWN_MODULE, "act", "--tree", str(self.tree.path)]
            env = {**self.env, "IMAGEBUILDER_TOKENS": str(self.tokens)}
            start_apart(argv, end=its.fileno(), env=env)
        return ours


def order_words(order: ActOrder) -> dict[str, Json]:
    """An order as it is asked for: what is empty is left out."""
    return {name: value for name, value in encode_box(order).items() if value}
