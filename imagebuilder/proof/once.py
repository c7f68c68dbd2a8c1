# SPDX-License-Identifier: Apache-2.0
"""A value that several questions need is made by the first of them, and the others wait for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Once(Generic[K, V]):
    """What was made so far, by key."""

    results: dict[K, Future[V]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of `key`.  Raises what `make` raised, whoever called it."""
        with self.lock:
            first = key not in self.results
            future = self.results.setdefault(key, Future())
        if first:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    def made(self) -> Mapping[K, V]:
        """The values that are there; nobody may call get() meanwhile."""
        done = self.results.items()
        return {key: future.result() for key, future in done if not future.exception()}
