# SPDX-License-Identifier: Apache-2.0
"""A message, who gets it, and how long to try."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from imagebuilder.decode import Opaque, UtcTime
from imagebuilder.digest import Json
from imagebuilder.untrusted import clean_lines, fit

SCHEMA = 1
MOST_TEXT = 300  # characters of the line that chats and subjects show


class Topic(StrEnum):
    """What a message is about; its key in the JSON."""

    NODES = "nodes"
    ROLLOUT = "rollout"
    NIGHTLY = "nightly"


@dataclass(frozen=True)
class Message:
    """What receivers get: `text` is one line, `details` are lines for mail, `body` is JSON.

    `id` stays the same however often it is sent.  The fields are what a state file keeps.
    """

    topic: Topic
    kinds: tuple[str, ...]
    text: str
    details: str
    body: Opaque
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    at: UtcTime = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def as_json(self) -> dict[str, Json]:
        """For webhooks and programs: a stable contract, in docs/notifications.md."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "at": self.at,
            "host": fit(socket.gethostname()),
            "text": f"imagebuilder: {self.text}",
            "topic": self.topic.value,
            "kinds": [*self.kinds],
            self.topic.value: dict(self.body),
        }


def one_line(text: str, most: int = MOST_TEXT) -> str:
    """Text of strangers as one line, which no terminal and no header takes for more."""
    return fit(" ".join(clean_lines(text).split()), most)


@dataclass(frozen=True)
class MessageReceiver:
    """Who gets messages of `kinds`, about nodes of `groups` (empty: all).

    `render` makes of a message the program that delivers it and what that reads on standard input,
    where no command line and no log shows it; it raises ImagebuilderError.  `shown` is what may be
    shown of the receiver.
    """

    name: str
    shown: str
    kinds: Collection[str]
    groups: Collection[str]
    render: Callable[[Message], tuple[list[str], bytes]] = field(repr=False)

    def wants(self, kind: str) -> bool:
        return kind in self.kinds


@dataclass(frozen=True)
class SendPatience:
    """How long a delivery may take, the pauses before it is tried again (the last one is repeated)
    and how old a message may become, all in seconds; `tries` is how often it is tried at the end.
    """

    answer: float = 30.0
    pauses: tuple[float, ...] = (5.0, 15.0, 60.0, 300.0, 600.0)
    keep: float = 43_200.0
    tries: int = 3

    def pause(self, failures: int) -> float:
        return self.pauses[min(failures, len(self.pauses)) - 1]


PATIENCE = SendPatience()
