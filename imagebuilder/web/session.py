# SPDX-License-Identifier: Apache-2.0
"""Sessions of people who logged in with a token: kept in memory alone, and they end.

A browser sends a cookie to every port of a host, so whoever can listen there and has somebody open
their page gets it.  A session is therefore good from the address alone that logged in.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field

COOKIE = "imagebuilder"
IDLE, LONGEST = 30 * 60.0, 8 * 3600.0  # seconds
MOST = 256


@dataclass
class WebSession:
    """One log-in.  `token` is what `act` is shown: whether it is still good is decided there."""

    token: str
    name: str
    role: str
    address: str
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    begun: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        now = time.monotonic()
        return now - self.used > IDLE or now - self.begun > LONGEST

    def has_form(self, csrf: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """Every open session by its id, which only the browser has besides."""

    def __init__(self) -> None:
        self._open: dict[str, WebSession] = {}
        self._lock = threading.Lock()

    def begin(self, token: str, name: str, role: str, address: str) -> str:
        """The id of a new session: never one that a browser brought along."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._open = {key: each for key, each in self._open.items() if not each.is_over}
            while len(self._open) >= MOST:
                del self._open[next(iter(self._open))]
            self._open[made] = WebSession(token, name, role, address)
        return made

    def find(self, key: str, address: str) -> WebSession | None:
        with self._lock:
            session = self._open.get(key)
            if session is None or session.is_over or session.address != address:
                return None
            session.used = time.monotonic()
            return session

    def end(self, key: str) -> None:
        with self._lock:
            self._open.pop(key, None)

    def end_all_of(self, token: str) -> None:
        with self._lock:
            self._open = {k: each for k, each in self._open.items() if each.token != token}
