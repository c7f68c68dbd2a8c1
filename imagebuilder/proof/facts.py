# SPDX-License-Identifier: Apache-2.0
"""What the questions of a proof read of files, each file once.

A value that several questions need is made by the first of them, and the others wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from imagebuilder.root import Root

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
# Facts by what was asked of files, "" if there is one question only, and by path.
Known = Mapping[str, Mapping[str, V]]


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


@dataclass(frozen=True)
class FileFacts(Generic[V]):
    """Facts about the content of files of a root.

    `known` returns those that an earlier proof read of files that are the same here.
    """

    root: Root
    known: Callable[[], Known[V]] = dict
    read: Once[tuple[str, str], V] = field(default_factory=Once)

    def of(self, path: str, read: Callable[[str], V], asked: str = "") -> V:
        """The fact about a file.  Raises what `read` raises."""
        return self.read.get((asked, path), lambda: self.find(asked, path) or read(path))

    def find(self, asked: str, path: str) -> V | None:
        """The fact if it is known.  A path with a link may lead to another file than it did."""
        known = self.known().get(asked, {}).get(path)
        return known if self.root.resolve(path) == path else None

    def kept(self, is_sound: Callable[[V], bool]) -> Known[V]:
        """The sound facts for a later proof; nobody may read meanwhile."""
        found: dict[str, dict[str, V]] = {}
        for (asked, path), fact in self.read.made().items():
            if is_sound(fact) and self.root.resolve(path) == path:
                found.setdefault(asked, {})[path] = fact
        return found
