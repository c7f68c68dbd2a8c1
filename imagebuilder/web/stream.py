# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: what changed, to any number of readers, each at its own speed.

An event has an id; a reader that comes back with the last one it had (Last-Event-ID) is given those
that it missed.  Where that cannot be done (it was away for too long, it reads too slowly, or the
server was restarted) it is sent `resync`: it reads everything again, and has lost nothing.

A new reader always gets a stream.  If there are too many, the oldest one ends, of the network and
the client with the most: it comes back with its Last-Event-ID, and nobody can keep the others out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from imagebuilder.digest import Json
from imagebuilder.web.connection import crowding

KEPT = 4096  # events that are remembered for those who come back
WAITING = 1024  # events that wait for one reader
STREAMS = 512
HEARTBEAT = 15.0  # seconds: proxies cut connections on which nothing is said
RETRY_MS = 2000
RESYNC = "resync"


@dataclass(frozen=True)
class StreamEvent:
    """One change: `name` says of what, `data` is JSON."""

    id: str
    name: str
    data: str

    def render(self) -> str:
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n"


@dataclass
class StreamReader:
    """Somebody who reads events; `behind` says that some were left out, `ended` that another reader
    has its place.
    """

    networks: tuple[str, ...] = ("",)
    events: deque[StreamEvent] = field(default_factory=deque)
    behind: bool = False
    ended: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def give(self, event: StreamEvent) -> None:
        if len(self.events) >= WAITING:
            self.events.clear()
            self.behind = True
        if not self.behind:
            self.events.append(event)
        self.woken.set()


class Broker:
    """Takes events and gives them to readers.  Everything happens in the thread of the server."""

    def __init__(self, *, streams: int = STREAMS) -> None:
        self.start = f"{time.time_ns():x}"
        self.streams = streams
        self.closed = False
        self.number = 0
        self.kept: deque[StreamEvent] = deque(maxlen=KEPT)
        self.readers: list[StreamReader] = []

    @property
    def last_id(self) -> str:
        return f"{self.start}-{self.number}"

    def publish(self, name: str, data: Json) -> None:
        self.number += 1
        event = StreamEvent(self.last_id, name, json.dumps(data, separators=(",", ":")))
        self.kept.append(event)
        for reader in self.readers:
            reader.give(event)

    def close(self) -> None:
        """End every stream; readers come back to the next server."""
        self.closed = True
        for reader in self.readers:
            reader.woken.set()

    @contextmanager
    def reading(self, last: str, networks: tuple[str, ...] = ("",)) -> Iterator[StreamReader]:
        """A reader that had everything up to the event `last`; empty for one that is new."""
        reader = StreamReader(networks)
        missed = self.since(last)
        reader.behind = missed is None
        reader.events.extend(missed or ())
        reader.woken.set()
        self.readers.append(reader)
        if len(self.readers) > self.streams:
            self.end_one()
        try:
            yield reader
        finally:
            if not reader.ended:
                self.readers.remove(reader)

    def end_one(self) -> None:
        """End the oldest stream of the network and the client with the most."""
        crowd = crowding(each.networks for each in self.readers)
        longest = max(self.readers, key=lambda each: crowd(each.networks))  # the first of equals
        self.readers.remove(longest)
        longest.ended = True
        longest.woken.set()

    def since(self, last: str) -> list[StreamEvent] | None:
        """The events after `last`; None when they are not known any more."""
        if not last or last == self.last_id:
            return []
        ids = [event.id for event in self.kept]
        return [*self.kept][ids.index(last) + 1 :] if last in ids else None

    def drain(self, reader: StreamReader) -> str:
        reader.woken.clear()
        if reader.behind:
            reader.behind = False
            reader.events.clear()
            return StreamEvent(self.last_id, RESYNC, "{}").render()
        text = "".join(event.render() for event in reader.events)
        reader.events.clear()
        return text


class EventStream(Response):
    """The answer that goes on until the reader, or the server, ends."""

    media_type = "text/event-stream"

    def __init__(self, broker: Broker, last: str, networks: tuple[str, ...] = ("",)) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.broker, self.last, self.networks = broker, last, networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def say(text: str, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        if scope["method"] == "HEAD":
            await say("", more=False)
            return
        gone = asyncio.ensure_future(wait_until_gone(receive))
        try:
            with self.broker.reading(self.last, self.networks) as reader:
                hello = StreamEvent(self.broker.last_id, "hello", "{}")
                await say(f"retry: {RETRY_MS}\n\n" + ("" if self.last else hello.render()))
                while not (gone.done() or self.broker.closed or reader.ended):
                    if text := self.broker.drain(reader):
                        await say(text)
                    elif not await woken(reader, gone):
                        await say(":\n\n")
        finally:
            gone.cancel()
        await say("", more=False)


async def woken(reader: StreamReader, gone: asyncio.Future[None]) -> bool:
    """Wait until there is something for a reader, or it is gone; False if there was nothing."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(reader.woken.wait())
    try:
        done, _ = await asyncio.wait(
            [waiting, gone], timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        waiting.cancel()
    return bool(done)


async def wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
