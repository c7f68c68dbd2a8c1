# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder read`: what the web page shows and may not read itself, for the page as a unit.

Reading is open where the page is open, so this takes no token.  It answers nothing but a closed
list of questions, with what the page would show if root ran it, and does nothing else: its unit has
no right but to read.  One process answers the questions of one connection, a line for a line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict

from imagebuilder.decode import decode_box, encode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.tree import Tree
from imagebuilder.web.act import REQUEST, RefusedError, read_request
from imagebuilder.web.node_facts import NodeStory
from imagebuilder.web.tree_reader import FleetNow, ReleasesNow, TreeReader

IDLE = 300.0  # seconds without a question after which it ends
MOST_QUESTION = 4096
MOST_ANSWER = 32 * 1024 * 1024
SECONDS = 10.0  # for an answer
PAUSE = 5.0  # seconds until the next try after a failure
ANSWER = "its answer"
LOG = logging.getLogger("imagebuilder.web")
Answer = TypeVar("Answer")


class ReadVerb(StrEnum):
    FLEET = "fleet"
    RELEASES = "releases"
    STORY = "story"


@dataclass(frozen=True)
class ReadQuestion:
    """`node` is for `story`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    verb: ReadVerb
    node: str = ""


def answer_questions(tree: Tree, source: int = 0, sink: int = 1, idle: float = IDLE) -> int:
    """Answer until nobody asks any more; an exit status."""
    reader = TreeReader(tree)
    os.set_blocking(sink, False)
    while True:
        try:
            line = read_request(source, idle, MOST_QUESTION)
        except RefusedError:
            return 1
        if not line:
            return 0
        try:
            question = decode_box(
                ReadQuestion, parse_object(line, REQUEST, hint=""), REQUEST, hint=""
            )
            answer: dict[str, Json] = {"answer": answer_of(reader, question)}
        except ImagebuilderError as error:
            answer = {"error": str(error)}
        if not write_all(sink, json.dumps(answer).encode() + b"\n"):
            return 1


def answer_of(reader: TreeReader, question: ReadQuestion) -> dict[str, Json]:
    """Raises ImagebuilderError."""
    match question.verb:
        case ReadVerb.FLEET:
            return encode_box(reader.fleet())
        case ReadVerb.RELEASES:
            return encode_box(reader.releases())
        case ReadVerb.STORY:
            return encode_box(reader.story(question.node))


def write_all(sink: int, raw: bytes, seconds: float = SECONDS) -> bool:
    """Write to who may read slowly, or not at all; whether all of it was taken in time."""
    until, left = time.monotonic() + seconds, memoryview(raw)
    while left:
        _, ready, _ = select.select([], [sink], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            left = left[os.write(sink, left) :]
        except OSError:
            return False
    return True


class RemoteReader:
    """Has `imagebuilder read` read, at a socket; `local` reads while that does not answer."""

    def __init__(self, place: Path, local: TreeReader) -> None:
        self.place, self.local, self.file, self.state = place, local, local.file, 0
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._retry_at = 0.0

    def fleet(self) -> FleetNow:
        return self.ask(FleetNow, ReadQuestion(ReadVerb.FLEET)) or self.local.fleet()

    def releases(self) -> ReleasesNow:
        return self.ask(ReleasesNow, ReadQuestion(ReadVerb.RELEASES)) or self.local.releases()

    def story(self, name: str) -> NodeStory:
        return self.ask(NodeStory, ReadQuestion(ReadVerb.STORY, name)) or self.local.story(name)

    def ask(self, kind: type[Answer], question: ReadQuestion) -> Answer | None:
        """What it answers; None where it does not."""
        raw = json.dumps(encode_box(question)).encode() + b"\n"
        if not self._lock.acquire(timeout=SECONDS):
            return None
        try:
            if time.monotonic() < self._retry_at:
                return None
            answer = parse_object(self.exchange(raw), ANSWER)
            return decode_box(kind, answer["answer"], ANSWER) if "answer" in answer else None
        except (OSError, InputError) as error:
            LOG.warning("reading as this user alone: %s: %s", self.place, error)
            self.hang_up()
            self._retry_at = time.monotonic() + PAUSE
            return None
        finally:
            self._lock.release()

    def exchange(self, raw: bytes) -> bytes:
        """One question and its answer.  Raises OSError."""
        if self._sock:
            with contextlib.suppress(ConnectionError):  # it ends when nobody asks for long
                return exchange(self._sock, raw)
            self.hang_up()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(SECONDS)
        self._sock.connect(str(self.place))
        self.state += 1
        return exchange(self._sock, raw)

    def hang_up(self) -> None:
        if self._sock:
            self._sock.close()
            self._sock, self.state = None, self.state + 1


def exchange(sock: socket.socket, raw: bytes) -> bytes:
    """A line for a line.  Raises OSError."""
    until, found = time.monotonic() + SECONDS, bytearray()
    sock.settimeout(SECONDS)
    sock.sendall(raw)
    while not found.endswith(b"\n"):
        sock.settimeout(max(0.01, until - time.monotonic()))
        more = sock.recv(1024 * 1024)
        if not more:
            raise ConnectionResetError("it ended early")
        found += more
        if len(found) > MOST_ANSWER:
            raise OSError("its answer is too long")
    return bytes(found)
